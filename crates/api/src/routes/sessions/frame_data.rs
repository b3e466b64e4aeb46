//! Data of the frames of a chat. Every frame also has `session_id` and `seq`, which [`super::frames::Frame::encode`]
//! adds.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::openapi::closed;

/// `delta`: text that the model wrote.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeltaFrame {
    pub(super) text: String,
    /// Number of the turn.
    pub(super) turn: u32,
    /// Bytes of the turn's text before this.
    pub(super) offset: usize,
}

/// `attempt_reset`: the text of a turn that was sent so far is void.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptResetFrame {
    pub(super) turn: u32,
}

/// `tool_use`: a call of the model. With `pending`, the caller runs it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolUseFrame {
    pub(super) tool: String,
    /// Arguments; a text if they are not JSON. Secrets are shown as `[redacted]`, unless the caller runs the call.
    pub(super) input: Value,
    pub(super) call_id: String,
    /// Number of the turn; absent for a call of a sub-agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u32, required = false)]
    pub(super) turn: Option<u32>,
    /// True if the caller runs the call; absent otherwise, as `hash` and `expires_at` are.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(super) pending: bool,
    /// Binds a result to the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub(super) hash: Option<String>,
    /// Without a result until then, the model reads an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = DateTime<Utc>, required = false)]
    pub(super) expires_at: Option<DateTime<Utc>>,
    /// Execution that made the call, if it is a sub-agent: its result is posted there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub(super) execution_id: Option<String>,
}

/// `tool_result`: the result of a call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolResultFrame {
    pub(super) tool: String,
    pub(super) output: String,
    pub(super) call_id: String,
    pub(super) is_error: bool,
}

/// `status`, `retry`, `sub_agent`, `approval_request` and `approval_resolved`: an event of the execution with its data.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventFrame {
    #[schema(value_type = closed::EventKind)]
    pub(super) event: String,
    #[serde(flatten)]
    pub(super) data: Map<String, Value>,
}

/// `error`: the execution failed; `done` follows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureFrame {
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
}

/// `done`: the last frame of a message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DoneFrame {
    pub(super) token_usage: TokenUsage,
    #[schema(value_type = closed::StopReason)]
    pub(super) stop_reason: &'static str,
    pub(super) execution_id: String,
}

/// Tokens of an execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenUsage {
    /// Tokens sent, of which `cached` and `cache_write`.
    pub(super) input: i64,
    pub(super) output: i64,
    /// Tokens that were read from the provider's cache.
    pub(super) cached: i64,
    /// Tokens that were written to the provider's cache.
    pub(super) cache_write: i64,
}
