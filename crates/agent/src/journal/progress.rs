//! Events of kind `status`: the stages of a run, for runs that have followers.
//!
//! They are committed with the next write; before a wait they are committed at once. The event's time is that of
//! the stage.

use longhaul_sdk::Step;
use serde::Serialize;
use serde_json::json;

use super::{Agent, Writer};

/// A stage of a run.
#[derive(Debug, Clone, Copy)]
pub enum Stage<'a> {
    /// Preparation.
    Thinking,
    /// Retrieval of references.
    Retrieving,
    /// Admission of the model call.
    Connecting,
    /// The model's reply.
    Generating,
    /// A tool runs for the call with this id.
    Calling { tool: &'a str, call: &'a str },
}

/// Progress of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Running,
    Completed,
    Failed,
}

/// The tool with a status kind of its own.
const WEB_SEARCH: &str = "web_search";

impl Writer {
    /// Adds a status event to the next commit.
    pub fn stage(&mut self, agent: &Agent, stage: Stage<'_>, state: State) {
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
        self.event("status", json!({ "id": id, "kind": kind, "label": label, "state": state }));
    }

    /// Commits pending status events before a wait.
    pub(crate) async fn flush_stages(&mut self, agent: &Agent) -> Step<()> {
        if agent.profile.is_followed() { self.flush().await } else { Ok(()) }
    }
}
