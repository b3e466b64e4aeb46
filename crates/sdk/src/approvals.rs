//! The approval policy of an agent: the calls that need a person's decision.
//!
//! ```
//! use longhaul_sdk::approvals::{Access, ApprovalsSpec, OnReject};
//! use serde_json::json;
//!
//! let approvals: ApprovalsSpec = serde_json::from_value(json!({
//!     "rules": [
//!         {"tool": "pay", "when": "arguments.amount > 100", "access": "ask"},
//!         {"tool": "delete_*", "access": "deny"},
//!     ],
//! }))?;
//! assert_eq!(approvals.rules[0].access, Access::Ask);
//! assert_eq!(approvals.default, Access::Auto);
//! assert_eq!(approvals.on_reject, OnReject::Continue);
//! assert!(ApprovalsSpec::default().is_default());
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An agent's policy for its calls; without one every call runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsSpec {
    /// Access for calls that match no rule.
    pub default: Access,
    /// Rules in order; the first that matches a call decides.
    pub rules: Vec<ApprovalRule>,
    /// Time for a person's decision or the caller's answer, in seconds. When it passes without a decision, the call
    /// counts as rejected.
    pub expires_seconds: u32,
    /// True if the API key that submitted the execution may decide.
    pub allow_self: bool,
    /// Effect of a rejection on the run.
    pub on_reject: OnReject,
    /// Arguments hidden from people, by tool (`*` matches any characters): JSON pointers such as `/token`, where
    /// `*` matches any one member or item. Arguments that the tool's schema marks `x-secret` or `writeOnly` are
    /// always hidden.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub redact: BTreeMap<String, Vec<String>>,
}

impl ApprovalsSpec {
    /// JSON pointers to the arguments of `tool` that are hidden from people.
    #[must_use]
    pub fn redactions(&self, tool: &str) -> Vec<String> {
        let of_tool = self.redact.iter().filter(|(pattern, _)| names(pattern, tool));
        of_tool.flat_map(|(_, pointers)| pointers.iter().cloned()).collect()
    }
}

impl Default for ApprovalsSpec {
    fn default() -> Self {
        Self {
            default: Access::Auto,
            rules: Vec::new(),
            expires_seconds: 24 * 3_600,
            allow_self: false,
            on_reject: OnReject::Continue,
            redact: BTreeMap::new(),
        }
    }
}

impl ApprovalsSpec {
    /// Returns true if every field has its default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Access of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The call runs.
    #[default]
    Auto,
    /// The call runs once a person approves it.
    Ask,
    /// The call does not run; the model is told.
    Deny,
}

/// A rule for the calls of some tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// The tool's name; `*` matches any characters, as in `mcp__bank__*`.
    pub tool: String,
    /// A condition over the resolved arguments, such as `arguments.amount > 100`; without one, the rule matches
    /// every call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Access of a matching call.
    pub access: Access,
}

/// Effect of a rejection on the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnReject {
    /// The model is told of the rejection and continues.
    #[default]
    Continue,
    /// The run ends with `human_rejected`.
    End,
}

/// Returns true if the glob `pattern` matches the tool's name: `*` stands for any characters.
#[must_use]
pub fn names(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    // The leftmost match of each part leaves the most room for the others.
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}
