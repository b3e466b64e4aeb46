//! Tools that Longhaul answers itself. They may wait for a person or for another execution.
//!
//! Invariants: a tool is called again with the same call after every resume, so its external effects are idempotent
//! by the call's key, and the turn is committed ([`Journal::flush`]) before a person or another execution hears of
//! the call. A tool returns quickly: the orchestrator awaits it, and the other calls of the reply make no progress
//! meanwhile.

use longhaul_sdk::Step;
use longhaul_tools::{CallOutcome, HostTool};

use super::{
    Agent,
    admission::{ReadyCall, Waiting},
    ask_caller,
    journal::Journal,
    spawn_sub_agent,
};

/// Result of calling a host tool.
#[derive(Debug)]
pub(crate) enum HostToolAnswer {
    Answered(CallOutcome),
    /// The call waits and has no result yet.
    Waiting(Waiting),
}

/// Answers one call of `tool`, or returns the reason to wait.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(crate) async fn call(
    tool: HostTool,
    agent: &Agent,
    journal: &mut Journal,
    call: &ReadyCall,
) -> Step<HostToolAnswer> {
    match tool {
        HostTool::AskCaller => ask_caller::call(agent, journal, call).await,
        HostTool::SpawnSubAgent => spawn_sub_agent::call(agent, journal, call).await,
    }
}
