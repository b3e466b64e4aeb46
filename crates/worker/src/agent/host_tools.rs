//! Tools that Longhaul answers itself. They may wait for a person or for another execution.
//!
//! Invariants: a tool is called again with the same call after every resume, so its external effects are idempotent
//! by the call's key, and the turn is committed ([`Journal::flush`]) before a person or another execution hears of
//! the call. A tool returns quickly: the orchestrator awaits it, and the other calls of the reply make no progress
//! meanwhile.

use longhaul_sdk::{Step, ToolSpec};
use serde_json::Value;

use super::{
    Agent,
    admission::{ReadyCall, Waiting},
    ask_caller,
    journal::Journal,
    spawn_sub_agent,
};
use crate::tools::CallOutcome;

/// A tool of Longhaul's own. An agent lists it in `tools` like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostTool {
    /// Asks the caller a question.
    AskCaller,
    /// Delegates parts of the task to other agents.
    SpawnSubAgent,
}

/// Result of calling a host tool.
#[derive(Debug)]
pub(crate) enum HostToolAnswer {
    Answered(CallOutcome),
    /// The call waits and has no result yet.
    Waiting(Waiting),
}

impl HostTool {
    pub(crate) const ALL: [Self; 2] = [Self::AskCaller, Self::SpawnSubAgent];

    /// The host tool of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AskCaller => ask_caller::ASK_CALLER,
            Self::SpawnSubAgent => spawn_sub_agent::SPAWN_SUB_AGENT,
        }
    }

    /// The tool as shown to the model, under the agent's `settings` for it.
    pub(crate) fn spec(self, settings: &Value) -> ToolSpec {
        match self {
            Self::AskCaller => ask_caller::spec(),
            Self::SpawnSubAgent => spawn_sub_agent::spec(settings),
        }
    }

    /// Answers one call, or returns the reason to wait.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub(crate) async fn call(self, agent: &Agent, journal: &mut Journal, call: &ReadyCall) -> Step<HostToolAnswer> {
        match self {
            Self::AskCaller => ask_caller::call(agent, journal, call).await,
            Self::SpawnSubAgent => spawn_sub_agent::call(agent, journal, call).await,
        }
    }
}
