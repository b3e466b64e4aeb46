//! THE AGENT LOOP: turn, calls, turn, … until the model answers.
//!
//! Nothing else belongs here. What is durable or observable happens in the journal, what is provider-specific behind
//! `ChatModel`, what concerns the window in the transcript. A new feature is a tool, a validator, a transcript policy or a kind
//! of journal entry, not a branch in this loop.

use longhaul_sdk::Step;

use super::{Agent, journal::Journal};

/// Runs the agent until it answers, and returns the answer's text.
///
/// # Errors
/// An interrupt (lease lost, cancelled, draining, deadline) or the failure that ends the attempt.
pub(crate) async fn run(agent: &Agent, journal: &mut Journal) -> Step<String> {
    loop {
        journal.check_budget(agent)?;
        let turn = journal.turn(agent).await?;
        if turn.calls.is_empty() {
            return Ok(turn.text);
        }
        journal.calls(agent, &turn).await?;
    }
}
