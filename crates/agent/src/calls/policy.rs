//! The approval policy of an agent, parsed. Pure: the same call gets the same ruling.

use std::borrow::Cow;

use longhaul_domain::redaction::is_pointer;
use longhaul_references::Condition;
use longhaul_sdk::{
    Failure, FailureCode,
    approvals::{Access, ApprovalsSpec, names},
};
use serde_json::Value;

/// The approval rules of an agent.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    spec: ApprovalsSpec,
    conditions: Vec<Option<Condition>>,
}

/// Ruling of the policy on one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruling {
    pub(crate) access: Access,
    /// The rule as text, for people.
    pub(crate) rule: String,
}

impl Policy {
    /// Parses the policy.
    ///
    /// # Errors
    /// `invalid_definition` for a condition or pointer that does not parse: an unreadable policy must not allow
    /// calls.
    pub fn new(spec: &ApprovalsSpec) -> Result<Self, Failure> {
        let parse = |text: &String| {
            Condition::parse_over_arguments(text).map_err(|error| {
                let summary = format!("the condition `{text}` of an approval rule cannot be read: {error}");
                Failure::permanent(FailureCode::INVALID_DEFINITION, summary)
            })
        };
        let pointers = spec.redact.values().flatten();
        if let Some(wrong) = pointers.into_iter().find(|pointer| !is_pointer(pointer)) {
            let summary =
                format!("`{wrong}` of approvals.redact is no JSON pointer into the arguments, such as `/token`");
            return Err(Failure::permanent(FailureCode::INVALID_DEFINITION, summary));
        }
        let conditions = spec.rules.iter().map(|rule| rule.when.as_ref().map(parse).transpose());
        Ok(Self { conditions: conditions.collect::<Result<_, _>>()?, spec: spec.clone() })
    }

    /// The rules as the agent states them.
    pub fn spec(&self) -> &ApprovalsSpec {
        &self.spec
    }

    /// Rules on a call of `tool` with resolved arguments. The first rule that matches decides.
    pub(crate) fn rule(&self, tool: &str, arguments: &Value) -> Ruling {
        for (rule, condition) in self.spec.rules.iter().zip(&self.conditions) {
            let holds = |condition: &Condition| condition.holds(&mut |path| path.find(arguments).map(Cow::Borrowed));
            if names(&rule.tool, tool) && condition.as_ref().is_none_or(holds) {
                let when = rule.when.as_ref().map_or_else(String::new, |when| format!(" when {when}"));
                return Ruling { access: rule.access, rule: format!("{}{when}", rule.tool) };
            }
        }
        Ruling { access: self.spec.default, rule: "default".to_owned() }
    }

    /// JSON pointers to the arguments of `tool` that are hidden from people.
    pub(crate) fn redactions(&self, tool: &str) -> Vec<String> {
        self.spec.redactions(tool)
    }

    /// True if every call of `tool` runs, whatever its arguments.
    pub(crate) fn always_allows(&self, tool: &str) -> bool {
        for rule in self.spec.rules.iter().filter(|rule| names(&rule.tool, tool)) {
            match (rule.access, &rule.when) {
                (Access::Auto, None) => return true,
                (Access::Auto, Some(_)) => {}
                (Access::Ask | Access::Deny, _) => return false,
            }
        }
        self.spec.default == Access::Auto
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(spec: Value) -> Policy {
        Policy::new(&serde_json::from_value(spec).unwrap()).unwrap()
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("pay", "pay", true),
            ("pay", "pays", false),
            ("*", "", true),
            ("mcp__bank__*", "mcp__bank__pay", true),
            ("mcp__bank__*", "mcp__shop__pay", false),
            ("*_write", "crm_write", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*x*", "box", true),
        ] {
            assert_eq!(names(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_rule_about_a_call_decides() {
        let policy = policy(json!({
            "default": "ask",
            "rules": [
                {"tool": "pay", "when": "arguments.amount > 100", "access": "deny"},
                {"tool": "pay", "when": "arguments.amount > 10", "access": "ask"},
                {"tool": "pay", "access": "auto"},
                {"tool": "read_*", "access": "auto"},
            ],
        }));
        let access = |tool: &str, amount: i32| policy.rule(tool, &json!({"amount": amount})).access;
        assert_eq!(
            [access("pay", 101), access("pay", 11), access("pay", 10)],
            [Access::Deny, Access::Ask, Access::Auto]
        );
        assert_eq!([access("read_mail", 1), access("send", 1)], [Access::Auto, Access::Ask]);
        assert_eq!(policy.rule("pay", &json!({"amount": 11})).rule, "pay when arguments.amount > 10");
        assert_eq!(policy.rule("pay", &json!({})).access, Access::Auto, "what is absent is above nothing");
        assert!(policy.always_allows("read_mail") && !policy.always_allows("pay") && !policy.always_allows("send"));
    }

    #[test]
    fn without_a_policy_every_call_runs() {
        let policy = Policy::default();
        assert_eq!(policy.rule("pay", &json!({})).access, Access::Auto);
        assert!(policy.always_allows("pay"));
    }

    #[test]
    fn unparsable_condition_is_an_invalid_definition() {
        let spec = json!({"rules": [{"tool": "pay", "when": "amount >", "access": "ask"}]});
        let failure = Policy::new(&serde_json::from_value(spec).unwrap()).unwrap_err();
        assert_eq!(failure.code, FailureCode::INVALID_DEFINITION);
    }

    #[test]
    fn unusable_redaction_pointer_is_an_invalid_definition() {
        for pointer in ["token", "", "/"] {
            let failure =
                Policy::new(&serde_json::from_value(json!({"redact": {"pay": [pointer]}})).unwrap()).unwrap_err();
            assert_eq!(failure.code, FailureCode::INVALID_DEFINITION, "{pointer}");
        }
        let policy = policy(json!({"redact": {"pay*": ["/token"], "payout": ["/iban"], "read": ["/x"]}}));
        assert_eq!(policy.redactions("payout"), ["/token", "/iban"]);
        assert!(policy.redactions("look").is_empty());
    }
}
