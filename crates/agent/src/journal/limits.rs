//! Limits of a run: turns, the last turn, and calls that repeatedly fail with the same error.

use longhaul_domain::ToolCall;
use longhaul_sdk::{FailureCode, Step};

use super::{Agent, Journal, call_record::Answered};
use crate::prepare::tool_list::Offer;

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
                    "[This is the turn before the last. In the last one {output}: make the calls that you still need \
                     now.]"
                ));
                Ok(Offer::All)
            }
            _ => Ok(Offer::All),
        }
    }

    /// Counts the calls of a tick that has closed, and warns the model of one that fails again and again.
    ///
    /// # Errors
    /// `repeated_call`, with a ledger of the usage.
    pub(crate) fn guard_repeats<'a>(&mut self, calls: impl Iterator<Item = (&'a ToolCall, &'a Answered)>) -> Step<()> {
        if let Some((tool, times)) = self.writer.counters.count_calls(calls)? {
            self.transcript.say(&format!(
                "[The same call of `{tool}` has failed {times} times with the same error. Change the arguments, use \
                 another tool, or answer without it; the run ends if it goes on.]"
            ));
        }
        Ok(())
    }
}
