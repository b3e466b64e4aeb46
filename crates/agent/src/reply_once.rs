//! One call of the model, whose reply is the answer: no loop, and no call of the reply runs (docs/design/wires.md).

use longhaul_sdk::{Failure, FailureCode, Step};

use super::{Agent, attempt::Attempt, journal::Turn, orchestrator::Tick, prepare::tool_list::Offer};

/// Asks the model once, or replays its reply, and returns the reply.
///
/// # Errors
/// An interrupt, or the failure of the call.
pub(crate) async fn reply_once(agent: &Agent, attempt: &mut Attempt) -> Step<Turn> {
    let mut tick = Tick::new(agent, attempt, Offer::All);
    let Some(turn) = Box::pin(tick.model_turn()).await? else {
        // A reply of no use is the answer too, so that another surface has recorded this one.
        return Err(Failure::permanent(FailureCode::INTERNAL_ERROR, "the recorded reply is no answer").into());
    };
    Box::pin(tick.commit_answer()).await?;
    Ok(turn)
}
