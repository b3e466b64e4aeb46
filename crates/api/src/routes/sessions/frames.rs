//! Events of an execution as the frames of a chat. Every frame but `delta` and `attempt_reset` has an id,
//! `<execution>.<event>.<frame>`, from which a stream resumes. Ids and order depend on the record alone: a live reader,
//! a late one and one that resumes get the same frames.

use std::str::FromStr;

use axum::response::sse::Event as SseEvent;
use longhaul_domain::{ExecutionId, SessionId, ToolCall, message::Message, redaction::Secrets};
use longhaul_sdk::approvals::ApprovalsSpec;
use longhaul_store::history::{body, events::Event, read::RecordedStep};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    caller_tools::CallerTools,
    frame_data::{AttemptResetFrame, DeltaFrame, EventFrame, ToolResultFrame, ToolUseFrame},
};
use crate::error::{ApiError, ApiResult};

/// In place of a number of bytes: the turn is recorded, and the reader has it whole.
pub(super) const RECORDED: usize = usize::MAX;

/// Place in a chat's stream: frames after frame `frame` of event `seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) execution: ExecutionId,
    pub(super) seq: i32,
    pub(super) frame: usize,
}

impl FromStr for Place {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<Self, ApiError> {
        let invalid = || ApiError::invalid("/header/Last-Event-ID", "is no id of an event of a chat");
        let mut parts = text.trim().splitn(3, '.');
        let mut next = || parts.next().ok_or_else(invalid);
        let (execution, seq, frame) = (next()?, next()?, next()?);
        Ok(Self {
            execution: execution.parse().map_err(|_| invalid())?,
            seq: seq.parse().map_err(|_| invalid())?,
            frame: frame.parse().map_err(|_| invalid())?,
        })
    }
}

/// One frame of the stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) name: &'static str,
    pub(super) data: Map<String, Value>,
}

impl Frame {
    pub(super) fn new(name: &'static str, data: impl Serialize) -> Self {
        match serde_json::to_value(data) {
            Ok(Value::Object(data)) => Self { name, data },
            Ok(_) | Err(_) => Self { name, data: Map::new() },
        }
    }

    /// True if the frame has an id. Text has none: readers get it in different pieces.
    pub(super) fn is_numbered(&self) -> bool {
        !matches!(self.name, "delta" | "attempt_reset")
    }

    /// The frame on the wire.
    pub(super) fn encode(mut self, session: SessionId, place: Place) -> SseEvent {
        self.data.insert("session_id".into(), json!(session));
        self.data.insert("seq".into(), json!(place.seq));
        let is_numbered = self.is_numbered();
        let event = SseEvent::default().event(self.name).data(Value::Object(self.data).to_string());
        if is_numbered { event.id(format!("{}.{}.{}", place.execution, place.seq, place.frame)) } else { event }
    }
}

/// What the frames of an execution need to know of its agent.
pub(super) struct Hiding {
    /// Names the arguments that are hidden from people.
    pub(super) approvals: ApprovalsSpec,
    /// Schemas of the tools' arguments, by name.
    pub(super) schemas: Map<String, Value>,
}

impl Hiding {
    fn hide(&self, tool: &str, arguments: &str) -> Value {
        let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
        Secrets { pointers: &self.approvals.redactions(tool), schema: self.schemas.get(tool) }.hide(arguments)
    }
}

/// Number of the step that an event is about.
pub(super) fn step_of(event: &Event) -> Option<i32> {
    event.data.as_ref()?.get("step")?.as_i64()?.try_into().ok()
}

/// Number of the turn that an event is about.
pub(super) fn turn_of(event: &Event) -> Option<u32> {
    event.data.as_ref()?.get("turn")?.as_u64()?.try_into().ok()
}

/// The frame that announces a call.
pub(super) fn tool_use(call: &ToolCall, turn: Option<u32>, hiding: &Hiding) -> Frame {
    let input = hiding.hide(&call.name, &call.arguments);
    let data = ToolUseFrame {
        tool: call.name.clone(),
        input,
        call_id: call.id.clone(),
        turn,
        pending: false,
        hash: None,
        expires_at: None,
        execution_id: None,
    };
    Frame::new("tool_use", data)
}

/// The calls of a recorded turn.
///
/// # Errors
/// The step cannot be read.
pub(super) fn calls_of(step: &RecordedStep) -> ApiResult<Vec<ToolCall>> {
    let mut all = Vec::new();
    for stored in &step.appends {
        if let Message::Assistant { calls, .. } = message(stored)? {
            all.extend(calls);
        }
    }
    Ok(all)
}

/// Ids and tools of the results in a step.
///
/// # Errors
/// The step cannot be read.
pub(super) fn results_of(step: &RecordedStep) -> ApiResult<Vec<(String, String)>> {
    let mut all = Vec::new();
    for stored in &step.appends {
        if let Message::Tool { call_id, name, .. } = message(stored)? {
            all.push((call_id, name));
        }
    }
    Ok(all)
}

/// True for the result of a call that ended while its reply still streamed: it is shown with its turn.
pub(super) fn is_early(event: &Event) -> bool {
    event.data.as_ref().is_some_and(|data| data["early"] == true)
}

/// The frames of a recorded turn: its text from `told` bytes on, then its calls, but for those of `caller`. A reader
/// that was told something else drops it.
///
/// # Errors
/// The step cannot be read.
pub(super) fn of_turn(
    step: &RecordedStep,
    (turn, told): (u32, usize),
    hiding: &Hiding,
    caller: &CallerTools,
) -> ApiResult<Vec<Frame>> {
    let mut frames = Vec::new();
    for stored in &step.appends {
        let Message::Assistant { text, calls, .. } = message(stored)? else { continue };
        let told = if told == RECORDED { text.len() } else { told };
        let (offset, rest) = match text.get(told..) {
            Some(rest) => (told, rest),
            None => {
                frames.push(Frame::new("attempt_reset", AttemptResetFrame { turn }));
                (0, text.as_str())
            }
        };
        if !rest.is_empty() {
            frames.push(Frame::new("delta", DeltaFrame { text: rest.to_owned(), turn, offset }));
        }
        let own = calls.iter().filter(|call| !caller.has(&call.name));
        frames.extend(own.map(|call| tool_use(call, Some(turn), hiding)));
    }
    Ok(frames)
}

/// The frames of a recorded call's result.
///
/// # Errors
/// The step cannot be read.
pub(super) fn of_call(step: &RecordedStep) -> ApiResult<Vec<Frame>> {
    let mut frames = Vec::new();
    for stored in &step.appends {
        let Message::Tool { call_id, name, text, is_error, .. } = message(stored)? else { continue };
        frames.push(Frame::new("tool_result", ToolResultFrame { tool: name, output: text, call_id, is_error }));
    }
    Ok(frames)
}

/// The frame of an event that holds all there is to say.
pub(super) fn of_event(event: &Event) -> Option<Frame> {
    let data = event.data.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    let is_call = data.get("request").is_some_and(|request| request == "tool_call");
    let name = match event.kind.as_str() {
        "child_request" => "approval_request",
        // As with calls of the execution itself, a result that was posted or not is no frame.
        "child_request_decided" if is_call => return None,
        "child_request_decided" => "approval_resolved",
        "approval_requested" | "question_asked" => "approval_request",
        "approval_decided" | "approval_expired" | "question_answered" | "question_expired" => "approval_resolved",
        "child_spawned" | "child_ended" => "sub_agent",
        "retrying" | "lease_lost" | "reply_cut" => "retry",
        "submitted" | "claimed" | "parked" | "woken" | "provider_down" | "fallback" | "compressed" => "status",
        _ => return None,
    };
    Some(Frame::new(name, EventFrame { event: event.kind.clone(), data }))
}

fn message(stored: &[u8]) -> ApiResult<Message> {
    let bytes = body::decode(stored)?;
    Message::from_bytes(&bytes).map_err(|error| {
        tracing::error!(error = %error, "a recorded message cannot be read");
        ApiError::Internal
    })
}
