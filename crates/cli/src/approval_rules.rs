//! Warns of approval rules whose condition is the only wall: a call for which it does not hold runs unseen.

use longhaul_sdk::approvals::{Access, ApprovalRule, ApprovalsSpec, names};

use crate::{
    spec_file_error::SpecProblem,
    spec_files::{Document, Kind},
};

/// The conditions of an agent after which no rule, and not the default, asks or denies.
pub fn open_conditions(document: &Document) -> Vec<SpecProblem> {
    if document.kind != Kind::Agent {
        return Vec::new();
    }
    let Ok(approvals) = serde_json::from_value::<ApprovalsSpec>(document.value["approvals"].clone()) else {
        return Vec::new();
    };
    if approvals.default != Access::Auto {
        return Vec::new();
    }
    let rules = approvals.rules.iter().enumerate();
    let open = rules.filter(|(at, rule)| {
        let later = approvals.rules.iter().skip(at + 1);
        rule.when.is_some() && rule.access != Access::Auto && !later.clone().any(|last| is_closed_by(rule, last))
    });
    let problem = |(at, rule): (usize, &ApprovalRule)| {
        let tool = &rule.tool;
        let what = format!(
            "a call of `{tool}` for which the condition does not hold runs without a person, also where an argument is \
             missing or a text: allow what may run with `access: auto`, and end with \
             `{{tool: \"{tool}\", access: ask}}`"
        );
        document.problem(&format!("/approvals/rules/{at}/when"), what)
    };
    open.map(problem).collect()
}

/// True if `last` asks or denies, without a condition, for every tool of `rule`.
fn is_closed_by(rule: &ApprovalRule, last: &ApprovalRule) -> bool {
    last.when.is_none() && last.access != Access::Auto && (last.tool == rule.tool || names(&last.tool, &rule.tool))
}
