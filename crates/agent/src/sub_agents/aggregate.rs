//! Strategies that need no model: the outcomes of children, in the order in which they were started, become one
//! result. Pure.

use std::collections::BTreeMap;

use longhaul_domain::{CallError, CallErrorKind};
use longhaul_sdk::json_pointer::token;
use serde_json::{Map, Value, json};

use super::outcome::{Outcome, fitting};

/// Most conflicts that a merge lists.
const MAX_CONFLICTS: usize = 100;
/// Bytes of the outcomes in an error.
const ERROR_BYTES: usize = 8_192;

/// Reason why a strategy has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failed {
    #[error("none of the sub-agents succeeded")]
    AllFailed,
    #[error("merge_json needs JSON objects, and these sub-agents gave none: {}", .0.join(", "))]
    NoObject(Vec<String>),
}

impl Failed {
    /// The error for the model, with what the children came to.
    pub(super) fn into_error(self, outcomes: &[Outcome]) -> CallError {
        let share = ERROR_BYTES / outcomes.len().max(1);
        let results: Vec<Value> = outcomes.iter().map(|outcome| outcome.entry(share)).collect();
        CallError::new(CallErrorKind::Runtime, self.to_string()).with_details(json!({ "results": results }))
    }
}

/// Every outcome. Each gets an equal share of `room`, so that a long one does not cut off those after it.
pub(super) fn collect(outcomes: &[Outcome], room: usize) -> Value {
    let share = room / outcomes.len().max(1);
    let results: Vec<Value> = outcomes.iter().map(|outcome| outcome.entry(share)).collect();
    json!({ "results": results })
}

/// The answers as one text with headings; failures are listed at its end.
pub(super) fn concatenate(outcomes: &[Outcome], room: usize) -> Result<Value, Failed> {
    some_success(outcomes)?;
    let share = room / outcomes.len().max(1);
    let (mut text, mut failed) = (String::new(), String::new());
    for (number, outcome) in (1..).zip(outcomes) {
        match outcome.text() {
            Some(answer) => {
                text.push_str(&format!("## {number}. {}\n\n{}\n\n", outcome.agent, fitting(answer.trim(), share)));
            }
            None => failed.push_str(&format!("- {number}. {}: {}\n", outcome.agent, outcome.status)),
        }
    }
    if !failed.is_empty() {
        text.push_str(&format!("## Without a result\n\n{failed}"));
    }
    Ok(json!({ "output": text.trim_end() }))
}

/// The outcome of the child that succeeded first.
pub(super) fn first_success(outcomes: &[Outcome], room: usize) -> Result<Value, Failed> {
    let first = successes(outcomes).min_by_key(|outcome| outcome.finished_at).ok_or(Failed::AllFailed)?;
    Ok(first.entry(room))
}

/// The most frequent answer; of several, that of the child started first.
pub(super) fn majority_vote(outcomes: &[Outcome], room: usize) -> Result<Value, Failed> {
    let mut votes: BTreeMap<String, usize> = BTreeMap::new();
    for vote in outcomes.iter().filter_map(Outcome::vote) {
        *votes.entry(vote).or_default() += 1;
    }
    let most = votes.values().max().copied().ok_or(Failed::AllFailed)?;
    let has_most = |outcome: &&Outcome| outcome.vote().and_then(|vote| votes.get(&vote)) == Some(&most);
    let winner = outcomes.iter().find(has_most).ok_or(Failed::AllFailed)?;
    let mut result = winner.entry(room);
    result["votes"] = json!(most);
    result["voters"] = json!(votes.values().sum::<usize>());
    Ok(result)
}

/// The answers, JSON objects, merged member by member in the order in which the children ended: the later one wins.
pub(super) fn merge_json(outcomes: &[Outcome]) -> Result<Value, Failed> {
    some_success(outcomes)?;
    let mut ended: Vec<&Outcome> = successes(outcomes).collect();
    ended.sort_by_key(|outcome| outcome.finished_at);
    let mut merge = Merge::default();
    let mut others = Vec::new();
    let mut merged = Map::new();
    for outcome in &ended {
        match outcome.json() {
            Some(Value::Object(members)) => merge.add(&mut merged, members, "", &outcome.id),
            Some(_) | None => others.push(outcome.id.clone()),
        }
    }
    if !others.is_empty() {
        return Err(Failed::NoObject(others));
    }
    let share = ERROR_BYTES / outcomes.len().max(1);
    let failed: Vec<Value> =
        outcomes.iter().filter(|outcome| !outcome.is_success()).map(|outcome| outcome.entry(share)).collect();
    let mut result = json!({ "output": merged, "conflicts": merge.conflicts });
    if merge.more_conflicts > 0 {
        result["more_conflicts"] = json!(merge.more_conflicts);
    }
    if !failed.is_empty() {
        result["failed"] = json!(failed);
    }
    Ok(result)
}

/// A merge under way.
#[derive(Debug, Default)]
struct Merge {
    conflicts: Vec<Value>,
    more_conflicts: usize,
}

impl Merge {
    fn add(&mut self, into: &mut Map<String, Value>, from: Map<String, Value>, path: &str, id: &str) {
        for (name, value) in from {
            let path = format!("{path}/{}", token(&name));
            match (into.get_mut(&name), value) {
                (Some(Value::Object(old)), Value::Object(new)) => self.add(old, new, &path, id),
                (Some(old), new) if *old == new => {}
                (Some(old), new) => {
                    if self.conflicts.len() < MAX_CONFLICTS {
                        self.conflicts.push(json!({ "path": path, "kept_of": id }));
                    } else {
                        self.more_conflicts += 1;
                    }
                    *old = new;
                }
                (None, new) => {
                    into.insert(name, new);
                }
            }
        }
    }
}

pub(super) fn successes(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(|outcome| outcome.is_success())
}

fn some_success(outcomes: &[Outcome]) -> Result<(), Failed> {
    if outcomes.iter().any(Outcome::is_success) { Ok(()) } else { Err(Failed::AllFailed) }
}
