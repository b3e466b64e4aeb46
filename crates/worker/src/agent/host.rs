//! Tools that Longhaul answers itself. They may wait: for a person, for another execution.
//!
//! What must hold: they are asked again after every resume with the same call, so what they do outside is found by the call's
//! key and done once, and what they say to somebody outside is said after the turn is committed ([`Journal::flush`]). They
//! answer soon: the calls beside them stand still meanwhile.

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

/// A tool of Longhaul's own. An agent names it in its `tools` like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostTool {
    /// Asks the caller.
    AskCaller,
    /// Has other agents carry out parts of the task.
    SpawnSubAgent,
}

/// What a call of such a tool came to.
#[derive(Debug)]
pub(crate) enum Hosted {
    /// Its result.
    Answered(CallOutcome),
    /// Nothing yet.
    Waiting(Waiting),
}

impl HostTool {
    /// Every one of them.
    pub(crate) const ALL: [Self; 2] = [Self::AskCaller, Self::SpawnSubAgent];

    /// The tool of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// What agents and models call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AskCaller => ask_caller::ASK_CALLER,
            Self::SpawnSubAgent => spawn_sub_agent::SPAWN_SUB_AGENT,
        }
    }

    /// What the model is shown of it, under the settings that its agent gives it.
    pub(crate) fn spec(self, settings: &Value) -> ToolSpec {
        match self {
            Self::AskCaller => ask_caller::spec(),
            Self::SpawnSubAgent => spawn_sub_agent::spec(settings),
        }
    }

    /// Answers one call, or says what it waits for.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub(crate) async fn call(self, agent: &Agent, journal: &mut Journal, call: &ReadyCall) -> Step<Hosted> {
        match self {
            Self::AskCaller => ask_caller::call(agent, journal, call).await,
            Self::SpawnSubAgent => spawn_sub_agent::call(agent, journal, call).await,
        }
    }
}
