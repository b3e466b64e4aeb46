//! A run that was asked for over a wire of other clients (crate `longhaul-wire`): what its request says beside its
//! input, its tools and its model. Stored in `AgentOverrides::wire`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::Message;

/// What a request over a wire asks of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireRun {
    pub wire: Wire,
    /// The messages of the request, in order, after the instructions; of a session's run those that are new. Empty for
    /// a definition, whose prompt is rendered from its input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// Instructions of the request; they follow the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The tools that the first turn may or must call.
    #[serde(default, skip_serializing_if = "WireChoice::is_auto")]
    pub tool_choice: WireChoice,
    /// JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Names of the functions whose arguments the provider of a model call holds to their schema (`strict`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strict_tools: Vec<String>,
    /// Most calls of tools that a worker runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// True if the text of replies is recorded in portions while the model writes it (events of kind `text`).
    #[serde(default)]
    pub is_streamed: bool,
    /// False if the run is erased when its answer was delivered.
    #[serde(default = "yes")]
    pub is_stored: bool,
    /// Tools whose calls the caller runs; absent for one call of a model, whose calls all are the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_caller: Option<Vec<String>>,
    /// Members of the request that the objects of its wire repeat.
    #[serde(default)]
    pub request: Value,
}

/// The wires of other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// `OpenAI`'s `/v1/responses`.
    Responses,
    /// `OpenAI`'s `/v1/chat/completions`.
    Chat,
    /// Anthropic's `/v1/messages`.
    Messages,
    /// AG-UI.
    AgUi,
}

/// The tools that a model may or must call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireChoice {
    #[default]
    Auto,
    None,
    Required,
    Named(String),
}

impl Wire {
    /// Its stored name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::AgUi => "ag_ui",
        }
    }
}

impl WireChoice {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

fn yes() -> bool {
    true
}

impl WireRun {
    /// The wire's part of stored overrides; `None` for a run of another surface.
    ///
    /// # Errors
    /// It was stored by a release that this one does not know.
    pub fn of(wire: Option<&Value>) -> serde_json::Result<Option<Self>> {
        wire.map(|stored| serde_json::from_value(stored.clone())).transpose()
    }
}
