//! The stages of a run as its followers are told of them: events of kind `status`, for runs that somebody follows.
//!
//! Told with the next commit; before a wait that commit is made at once. The event's own time is that of the stage.

use longhaul_sdk::Step;
use serde_json::json;

use super::{Agent, Journal};

/// What a run is at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage<'a> {
    /// It is made ready.
    Thinking,
    /// It looks for references.
    Retrieving,
    /// It asks for its model.
    Connecting,
    /// The model answers.
    Generating,
    /// A tool runs, for the call of this id.
    Calling { tool: &'a str, call: &'a str },
}

/// Where a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Completed,
    Failed,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// The tool whose stage has a name of its own.
const WEB_SEARCH: &str = "web_search";

impl Journal {
    /// Tells of a stage with the next commit.
    pub(crate) fn stage(&mut self, agent: &Agent, stage: Stage<'_>, state: State) {
        if !agent.profile.is_followed() {
            return;
        }
        let turn = self.turns;
        let (id, kind, label) = match stage {
            Stage::Thinking => ("thinking".to_owned(), "thinking", "Thinking".to_owned()),
            Stage::Retrieving => ("retrieving".to_owned(), "retrieving", "Retrieving references".to_owned()),
            Stage::Connecting => (format!("connecting-{turn}"), "connecting", "Connecting to the model".to_owned()),
            Stage::Generating => (format!("generating-{turn}"), "generating", "Generating".to_owned()),
            Stage::Calling { tool: WEB_SEARCH, call } => {
                (format!("tool-{turn}-{call}"), "searching_web", "Searching the web".to_owned())
            }
            Stage::Calling { tool, call } => (format!("tool-{turn}-{call}"), "running_tool", format!("Running {tool}")),
        };
        self.event("status", json!({ "id": id, "kind": kind, "label": label, "state": state.as_str() }));
    }

    /// Commits what was told, so that followers hear of it before the wait that comes.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub(crate) async fn flush_stages(&mut self, agent: &Agent) -> Step<()> {
        if agent.profile.is_followed() { self.flush().await } else { Ok(()) }
    }
}
