//! Tools: what an agent can do besides answering.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{failure::Failure, scratchpad::ToolScratchpad};

/// What running a tool twice would do. It decides what happens to a call that may have run before a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    /// Changes nothing: run again freely.
    ReadOnly,
    /// The same idempotency key changes things once: run again under the same key.
    Idempotent,
    /// Anything else: never repeated blindly. The model is told `outcome_unknown`.
    #[default]
    SideEffect,
}

/// What a model is shown of a tool, and what the worker needs to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name the model calls; `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments; an object.
    pub parameters: Value,
    /// What running it twice would do.
    pub effect: ToolEffect,
    /// Set for a latent tool: JSON Schema of the result that the model writes itself. No code runs for a call of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latent_output: Option<Value>,
    /// The parameters are in the form that providers can hold a model to: every property required, nothing else allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_strict: bool,
}

/// What a tool may use while it runs.
#[derive(Debug, Clone)]
pub struct ToolCallContext {
    /// Stable over every repetition of this call; pass it on to whatever the tool changes.
    pub idempotency_key: String,
    /// The id of the tenant whose execution calls; none where no execution does.
    pub tenant_id: Option<String>,
    /// What validators will read.
    pub scratchpad: Arc<ToolScratchpad>,
    /// The time the call has left; the worker stops waiting after it.
    pub timeout: Duration,
}

/// What the model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text of the result; longer than the agent's limit, it is cut and says so.
    pub text: String,
    /// Which of the call's alternative places the result goes to, such as `†state.rejected`; the first when absent.
    pub destination: Option<String>,
}

impl ToolOutput {
    /// Chooses among the places that the call offers for its result.
    #[must_use]
    pub fn at(mut self, destination: impl Into<String>) -> Self {
        self.destination = Some(destination.into());
        self
    }
}

/// What a tool knows of a call that may have run before a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciled {
    /// It ran, and this is its result.
    Done(ToolOutput),
    /// It did not run: it runs now, under the same key.
    NotDone,
    /// Nobody can say. The model is told `outcome_unknown`.
    Unknown,
}

impl<T: Into<String>> From<T> for ToolOutput {
    fn from(text: T) -> Self {
        Self { text: text.into(), destination: None }
    }
}

/// How a tool can fail.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolFailure {
    /// The model is told, and decides what to do: the ordinary case.
    Reported(String),
    /// It may have taken effect, and nobody can say: the model is told `outcome_unknown`, the ledger says `unknown`.
    OutcomeUnknown(String),
    /// The run cannot go on; the failure's class decides the retry (`tool_error`: two).
    EndsRun(Failure),
}

impl<T: std::fmt::Display> From<T> for ToolFailure {
    fn from(error: T) -> Self {
        Self::Reported(error.to_string())
    }
}

/// A tool written in Rust, with typed arguments.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// The arguments; their JSON Schema is what the model is shown.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique in a worker.
    fn name(&self) -> &str;

    /// For the model.
    fn description(&self) -> &str;

    /// What running it twice would do; `side_effect` unless said otherwise.
    fn effect(&self) -> ToolEffect {
        ToolEffect::SideEffect
    }

    /// Runs one call.
    async fn call(&self, args: Self::Args, context: ToolCallContext) -> Result<ToolOutput, ToolFailure>;

    /// Looks up, by `context.idempotency_key`, whether a call that was under way when a worker died has taken effect. Asked only for
    /// tools whose effect is [`ToolEffect::SideEffect`], and never changes anything.
    async fn reconcile(&self, _args: Self::Args, _context: ToolCallContext) -> Reconciled {
        Reconciled::Unknown
    }
}
