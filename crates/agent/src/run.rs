//! THE AGENT LOOP: budget check, model turn, calls, output, until there is an output.
//!
//! Nothing else belongs here. The orchestrator schedules the calls of a reply, the journal makes steps durable and
//! observable, and `ChatModel` hides the provider. A new feature is a tool, a validator, a transcript policy or a
//! kind of journal entry, not a branch in this loop.

use longhaul_sdk::Step;

use super::{Agent, attempt::Attempt, orchestrator::Tick};

/// Runs the agent until it has an output, and returns the output's text.
///
/// # Errors
/// An interrupt (lease lost, cancelled, draining, deadline, waiting) or the failure that ends the attempt.
pub(crate) async fn run(agent: &Agent, attempt: &mut Attempt) -> Step<String> {
    loop {
        // Budget check: no turn left ends the run, and the last one offers the output alone. The cost of a request
        // is reserved in the tree's budget before it is sent.
        let offer = attempt.journal.next_offer(agent)?;
        let mut tick = Tick::new(agent, attempt, offer);

        // Model turn: replayed if it is recorded, otherwise requested. Calls may start while the reply streams.
        let Some(turn) = Box::pin(tick.model_turn()).await? else { continue };

        // Output as text: a reply without calls.
        if turn.is_answer() {
            Box::pin(tick.commit_answer()).await?;
            return Ok(turn.text);
        }

        // Calls: admitted, recorded and run as their references allow, until each has its result or the run waits.
        Box::pin(tick.run_calls(turn)).await?;

        // Output as a call: held until the validators have judged it. Otherwise the results go to the next turn.
        if let Some(output) = tick.close()? {
            return Ok(output);
        }
    }
}
