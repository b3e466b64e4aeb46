//! Counters of a run, over all its attempts, and the calls that repeatedly fail with the same error.

use std::collections::HashMap;

use longhaul_domain::ToolCall;
use longhaul_llm::{Message, Usage};
use longhaul_sdk::{Failure, FailureCode, Step};
use longhaul_store::history::journal::Hash;
use serde::Serialize;
use serde_json::json;

use super::call_record::Answered;
use crate::messages::hash_parts;

/// Identical failing calls until the model is warned, and until the run fails.
const REPEATS_NOTICED: u32 = 3;
const REPEATS_ALLOWED: u32 = 5;
/// Maximum call names in a failure's ledger.
const MAX_LEDGER_CALLS: usize = 20;

/// Counters of a run. As JSON they are the ledger of a failure.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counters {
    turns: u32,
    calls: u32,
    input_tokens: u64,
    output_tokens: u64,
    /// Tool names of the last turn, at most [`MAX_LEDGER_CALLS`].
    last_calls: Vec<String>,
    /// Failing calls by tool, arguments and error.
    #[serde(skip)]
    repeats: HashMap<Hash, u32>,
    /// Consecutive replies without text or calls.
    #[serde(skip)]
    pub(super) unusable_turns: u32,
}

impl Counters {
    pub(super) fn count_turn(&mut self, usage: Usage) {
        self.turns += 1;
        self.input_tokens += usage.input_tokens.unwrap_or_default();
        self.output_tokens += usage.output_tokens.unwrap_or_default();
    }

    /// Counts the calls of a turn. Returns the tool of a call that has failed so often that the model is to be warned,
    /// and how often. Calls are identical if tool, resolved arguments and error text are equal.
    ///
    /// # Errors
    /// `repeated_call`, with a ledger of the usage.
    pub(super) fn count_calls<'a>(
        &mut self,
        calls: impl Iterator<Item = (&'a ToolCall, &'a Answered)>,
    ) -> Step<Option<(String, u32)>> {
        self.last_calls.clear();
        let mut noticed = None;
        for (call, answered) in calls {
            self.calls += 1;
            if self.last_calls.len() < MAX_LEDGER_CALLS {
                self.last_calls.push(call.name.clone());
            }
            let Message::Tool { text, is_error: true, .. } = &answered.message else { continue };
            let ran = answered.ran.as_ref().map(|ran| ran.arguments.to_string());
            let arguments = ran.as_deref().unwrap_or(&call.arguments);
            let key = hash_parts(&[call.name.as_bytes(), arguments.as_bytes(), text.as_bytes()]);
            let times = self.repeats.entry(key).or_default();
            *times += 1;
            let times = *times;
            if times >= REPEATS_ALLOWED {
                let summary = format!("the agent made the same failing call of `{}` {times} times", call.name);
                return Err(self.spent(FailureCode::REPEATED_CALL, summary, "repeats", REPEATS_ALLOWED).into());
            }
            if times == REPEATS_NOTICED {
                noticed = Some((call.name.clone(), times));
            }
        }
        Ok(noticed)
    }

    /// A failure because the run has used up `limit` of `cap`.
    pub(super) fn spent(&self, code: FailureCode, summary: String, cap: &str, limit: u32) -> Failure {
        Failure::permanent(code, summary).with_detail(json!({ "cap": cap, "limit": limit, "spent": self }))
    }
}
