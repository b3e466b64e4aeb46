//! Limits of a run: turns, the last turn, and calls that repeatedly fail with the same error.

use std::collections::HashMap;

use longhaul_llm::{Message, Usage};
use longhaul_sdk::{Failure, FailureCode, Step};
use longhaul_shared::domain::ToolCall;
use longhaul_store::history::journal::Hash;
use serde::Serialize;
use serde_json::json;

use super::{Agent, Journal, calls::Answered};
use crate::{messages::hash_parts, tool_list::Offer};

/// Identical failing calls until the model is warned, and until the run fails.
const REPEATS_NOTICED: u32 = 3;
const REPEATS_ALLOWED: u32 = 5;
/// Maximum call names in a failure's ledger.
const MAX_LEDGER_CALLS: usize = 20;

/// Counters of the run, over all its attempts. As JSON they are the ledger of a failure.
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

    fn spent(&self, code: FailureCode, summary: String, cap: &str, limit: u32) -> Failure {
        Failure::permanent(code, summary).with_detail(json!({ "cap": cap, "limit": limit, "spent": self }))
    }
}

impl Journal {
    /// The tools of the next turn: all, or on the last turn the output tool alone. Warns the model on the turn
    /// before the last.
    ///
    /// # Errors
    /// `max_turns_exceeded`, with a ledger of the usage.
    pub(crate) fn next_offer(&mut self, agent: &Agent) -> Step<Offer> {
        if !agent.profile.takes_part() {
            // The profile ends the run.
            return Ok(Offer::All);
        }
        let max = agent.config.limits.max_turns;
        let left = max.saturating_sub(self.writer.turns);
        match left {
            0 => {
                let summary = format!("the agent used all its {max} turns without an answer");
                Err(self.writer.counters.spent(FailureCode::MAX_TURNS_EXCEEDED, summary, "max_turns", max).into())
            }
            1 => Ok(Offer::OutputOnly),
            2 => {
                let output = if agent.tool_list.has_output() {
                    "only submit_output is available"
                } else {
                    "no tool is available"
                };
                self.transcript.say(&format!(
                    "[This is the turn before the last. In the last one {output}: make the calls that you still need now.]"
                ));
                Ok(Offer::All)
            }
            _ => Ok(Offer::All),
        }
    }

    /// Counts identical failing calls when a tick has closed. Calls are identical if tool, resolved arguments and
    /// error text are equal.
    ///
    /// # Errors
    /// `repeated_call`, with a ledger of the usage.
    pub(crate) fn guard_repeats<'a>(&mut self, calls: impl Iterator<Item = (&'a ToolCall, &'a Answered)>) -> Step<()> {
        let counters = &mut self.writer.counters;
        counters.last_calls.clear();
        let mut noticed = None;
        for (call, answered) in calls {
            counters.calls += 1;
            if counters.last_calls.len() < MAX_LEDGER_CALLS {
                counters.last_calls.push(call.name.clone());
            }
            let Message::Tool { text, is_error: true, .. } = &answered.message else { continue };
            let ran = answered.ran.as_ref().map(|ran| ran.arguments.to_string());
            let arguments = ran.as_deref().unwrap_or(&call.arguments);
            let key = hash_parts(&[call.name.as_bytes(), arguments.as_bytes(), text.as_bytes()]);
            let times = counters.repeats.entry(key).or_default();
            *times += 1;
            if *times >= REPEATS_ALLOWED {
                let summary = format!("the agent made the same failing call of `{}` {times} times", call.name);
                return Err(counters.spent(FailureCode::REPEATED_CALL, summary, "repeats", REPEATS_ALLOWED).into());
            }
            if *times == REPEATS_NOTICED {
                noticed = Some((call.name.clone(), *times));
            }
        }
        if let Some((tool, times)) = noticed {
            self.transcript.say(&format!(
                "[The same call of `{tool}` has failed {times} times with the same error. Change the arguments, use another tool, or \
                 answer without it; the run ends if it goes on.]"
            ));
        }
        Ok(())
    }
}
