//! THE AGENT LOOP: turn, calls, turn, … until there is an output.
//!
//! Nothing else belongs here. The orchestrator schedules the calls of a reply, the journal makes steps durable and
//! observable, and `ChatModel` hides the provider. A new feature is a tool, a validator, a transcript policy or a
//! kind of journal entry, not a branch in this loop.

use longhaul_sdk::Step;

use super::{
    Agent,
    journal::Journal,
    orchestrator::{self, Ticked},
};

/// Runs the agent until it has an output, and returns the output's text.
///
/// # Errors
/// An interrupt (lease lost, cancelled, draining, deadline, waiting) or the failure that ends the attempt.
pub(crate) async fn run(agent: &Agent, journal: &mut Journal) -> Step<String> {
    loop {
        let offer = journal.next_offer(agent)?;
        match orchestrator::tick(agent, journal, offer).await? {
            Ticked::Output(output) => return Ok(output),
            Ticked::Continue => {}
        }
    }
}
