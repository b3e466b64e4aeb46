//! What one child came to.

use std::{borrow::Cow, cmp::Ordering};

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, ExecutionStatus, cut};
use longhaul_sdk::{FailureCode, Step, answer, numbers};
use longhaul_store::executions::{children::Child, sub_agents::ChildEnd};
use serde_json::{Number, Value, json};

use crate::journal::{Task, Writer};

/// Characters that are read of all outputs of one call. Each child has an equal share; a longer output is cut, and is
/// a text then.
const OUTPUT_CHARACTERS: usize = 16 << 20;
/// Bytes of an entry beside its output or error: the ids and names.
const ENTRY_BYTES: usize = 256;
/// Most bytes of a failure's text.
const SUMMARY_BYTES: usize = 512;

/// Integers up to here are exact in a double.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The state of one child, as results show it.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) id: String,
    pub(super) agent: String,
    pub(super) status: &'static str,
    pub(super) finished_at: Option<DateTime<Utc>>,
    /// The output of a success.
    pub(super) output: Option<Value>,
    /// The last text of a child that still runs.
    pub(super) partial: Option<String>,
    failure_code: Option<String>,
    failure_summary: Option<String>,
}

/// The children of one call, and the task of each.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) tasks: Vec<Task>,
}

/// What these children came to, in their order.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn outcomes(journal: &Writer, children: &[Child]) -> Step<Vec<Outcome>> {
    let ended: Vec<ExecutionId> =
        children.iter().filter(|child| child.status.is_terminal()).map(|child| child.id).collect();
    let mut ends = journal.child_ends(&ended, OUTPUT_CHARACTERS / children.len().max(1)).await?;
    Ok(children.iter().map(|child| Outcome::of(child, ends.remove(&child.id))).collect())
}

impl Outcome {
    fn of(child: &Child, end: Option<ChildEnd>) -> Self {
        let code = child.failure_code.as_deref();
        let status = match child.status {
            ExecutionStatus::Pending => "pending",
            ExecutionStatus::InProgress => "running",
            ExecutionStatus::Finished => "completed",
            ExecutionStatus::Failed if code == Some(FailureCode::CANCELLED.as_str()) => "cancelled",
            ExecutionStatus::Failed if code == Some(FailureCode::DEADLINE_EXCEEDED.as_str()) => "timed_out",
            ExecutionStatus::Failed => "failed",
        };
        let (output, failure_summary) = end.map_or((None, None), |end| (end.output, end.failure_summary));
        let output = (child.status == ExecutionStatus::Finished).then(|| {
            let text = output.unwrap_or_else(|| "null".to_owned());
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        });
        Self {
            id: child.id.to_string(),
            agent: child.agent_key.clone(),
            status,
            finished_at: child.finished_at,
            output,
            partial: None,
            failure_code: child.failure_code.clone(),
            failure_summary,
        }
    }

    pub(super) fn is_success(&self) -> bool {
        self.output.is_some()
    }

    /// The child in a result, in about `max_bytes`.
    pub(super) fn entry(&self, max_bytes: usize) -> Value {
        let room = max_bytes.saturating_sub(ENTRY_BYTES);
        let mut entry = json!({ "sub_agent_id": self.id, "agent": self.agent, "status": self.status });
        match &self.output {
            Some(output) => {
                let text = output.to_string();
                entry["output"] = if text.len() <= room { output.clone() } else { json!(fitting(&text, room)) };
            }
            None if self.status == "pending" || self.status == "running" => {}
            None => {
                let summary = self.failure_summary.as_deref().map(|text| fitting(text, room.min(SUMMARY_BYTES)));
                entry["error"] = json!({ "code": self.failure_code, "message": summary });
            }
        }
        if let Some(text) = &self.partial {
            entry["partial_result"] = json!(fitting(text, room));
        }
        entry
    }

    /// What the child answered: the text of an agent that ran without a definition, or else its output.
    fn answer(&self) -> Option<&Value> {
        let output = self.output.as_ref()?;
        let response = output
            .as_object()
            .filter(|members| members.len() == 1)
            .and_then(|members| members.get("response").filter(|response| response.is_string()));
        Some(response.unwrap_or(output))
    }

    /// The answer as text.
    pub(super) fn text(&self) -> Option<String> {
        self.answer().map(|answer| answer.as_str().map_or_else(|| answer.to_string(), str::to_owned))
    }

    /// The answer as JSON, if it is JSON.
    pub(super) fn json(&self) -> Option<Value> {
        let given = self.answer()?;
        given.as_str().map_or_else(|| Some(given.clone()), |text| answer::parse(text).ok())
    }

    /// A text that equal answers share: canonical JSON, or else the trimmed text.
    pub(super) fn vote(&self) -> Option<String> {
        match self.json() {
            Some(value) => Some(canonical(value).to_string()),
            None => self.text().map(|text| text.trim().to_owned()),
        }
    }
}

/// The value with one spelling per number; the members of objects are sorted already.
fn canonical(value: Value) -> Value {
    fn integral(value: Value) -> Value {
        match value {
            Value::Number(number) if !number.is_i64() && !number.is_u64() => {
                let whole = number.as_f64().filter(|double| double.fract() == 0.0 && double.abs() < MAX_EXACT);
                // The number may have digits that a double has not.
                let whole = whole.map(|double| Number::from(double as i64));
                Value::Number(
                    whole.filter(|whole| numbers::compare(whole, &number) == Ordering::Equal).unwrap_or(number),
                )
            }
            Value::Array(items) => items.into_iter().map(integral).collect(),
            Value::Object(members) => members.into_iter().map(|(name, member)| (name, integral(member))).collect(),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
        }
    }
    integral(numbers::canonical(&value))
}

/// The text, cut so that it takes at most that many bytes within a JSON string.
pub(super) fn fitting(text: &str, max_bytes: usize) -> Cow<'_, str> {
    let mut room = max_bytes;
    let has_no_room = |c: char| {
        let needs = match c {
            '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
            '\0'..' ' => 6,
            _ => c.len_utf8(),
        };
        let rest = room.checked_sub(needs);
        room = rest.unwrap_or_default();
        rest.is_none()
    };
    match text.find(has_no_room) {
        Some(at) => cut(text, at),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fits_as_a_json_string() {
        for text in ["plain ".repeat(100), "\"\\\n".repeat(200), "\u{1}é".repeat(200)] {
            for max in [64, 100, 500, 10_000] {
                let fits = fitting(&text, max);
                assert!(json!(fits).to_string().len() <= max + 2, "{max}: {fits}");
            }
        }
        assert_eq!(fitting("a\n", 3), "a\n");
    }

    #[test]
    fn votes_tell_numbers_apart_beyond_a_double() {
        let vote = |text: &str| canonical(serde_json::from_str(text).unwrap()).to_string();
        assert_eq!(vote("[1.0]"), vote("[1]"));
        assert_ne!(vote("1.0000000000000000000001"), vote("1"));
    }
}
