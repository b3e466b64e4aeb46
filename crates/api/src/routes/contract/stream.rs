//! `POST /v1/internal/agent-executions/stream`: runs an agent and streams its progress.
//!
//! Frames are `event: NAME`, `data: JSON` and an empty line, with LF and ASCII only, because some clients decode
//! each byte by itself. The stream ends with `complete` or `error`, then the connection closes. An error in a
//! request that is JSON is an `error` in the stream, with its status in `status_code`.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use futures::stream;
use longhaul_contract::{ContractRefusal, ErrorBody, ExecRequest, ExecutionView, timestamp};
use longhaul_domain::{ExecutionId, ExecutionStatus, ascii_json::ascii};
use longhaul_store::{history::events::Event, tenants::scope::TenantScope};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    admit::recorded,
    answer::{ContractError, EXECUTION_ID, Ending},
    internal::{read, submit},
};
use crate::{
    body::in_turn,
    event_stream::{Frame, Subscription},
    middleware::RequestId,
    state::ApiState,
};

/// Silence after which a comment is sent to keep the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum number of running status entries remembered per run; a run has a few dozen.
const MAX_OPEN: usize = 1_000;

/// Runs an agent and streams its progress.
///
/// Events and the schemas of their `data`: `status` (`AgentExecutionStatusFrame`), `delta`
/// (`AgentExecutionDeltaFrame`), and at the end `complete` (`AgentExecutionCompleteFrame`) or `error`
/// (`AgentExecutionErrorFrame`).
#[utoipa::path(
    post,
    operation_id = "streamInternalAgentExecution",
    path = "/v1/internal/agent-executions/stream",
    tag = "agent executions",
    request_body(
        content = ref("#/components/schemas/InternalAgentExecutionBody"),
        description = "docs/reference/agent-execution-contract.md",
    ),
    responses(
        (
            status = 200,
            description = "`status`, `delta`, then `complete` or `error`",
            content((String = "text/event-stream")),
        ),
        (status = 400, description = "`invalid_payload`: not a JSON object"),
        (status = 401, description = "`invalid_service_token`"),
    ),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    Extension(RequestId { told: request_id, .. }): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ContractError> {
    let bytes = read(&headers, body, state.options.contract.body_max_bytes).await?;
    let request = match in_turn(bytes.len(), || ExecRequest::read(&bytes)).await {
        Err(refusal) if refusal == ContractRefusal::PAYLOAD => return Err(refusal.into()),
        read => read.map_err(ContractError::from),
    };
    let begun = match request {
        Ok(request) => begin(&state, request, &request_id, &headers).await,
        Err(error) => Err(error),
    };
    let (telling, id) = match begun {
        Ok((telling, id)) => (telling, Some(id)),
        Err(error) => (Telling::Last(error_frame(&error)), None),
    };
    let frames = stream::unfold(telling, |telling| async {
        telling.next().await.map(|(frame, next)| (Ok::<_, Infallible>(Bytes::from(frame)), next))
    });
    let mut response = Body::from_stream(frames).into_response();
    let named = response.headers_mut();
    named.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    named.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    named.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    if let Some(Ok(id)) = id.map(|id| HeaderValue::from_str(&id.to_string())) {
        named.insert(EXECUTION_ID, id);
    }
    Ok(response)
}

async fn begin(
    state: &ApiState,
    request: ExecRequest,
    request_id: &str,
    headers: &HeaderMap,
) -> Result<(Telling, ExecutionId), ContractError> {
    let (tenant, id) = submit(state, request, request_id, headers, true).await?;
    let subscription = match state.event_streams.subscribe(tenant, id, 0).await {
        Ok(subscription) => subscription,
        // The execution is stored and runs: the error carries its id.
        Err(error) => return Ok((Telling::Last(error_frame(&ContractError::from(error).of(id))), id)),
    };
    let shutdown = state.shutdown.clone();
    let following = Following {
        state: state.clone(),
        id,
        subscription,
        shutdown,
        ready: Vec::new(),
        open: HashMap::new(),
        is_over: false,
    };
    Ok((Telling::Following(Box::new(following)), id))
}

/// Data of an `error` frame: an error body with its status.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionErrorFrame")]
pub(crate) struct ErrorFrame {
    error: String,
    message: String,
    status_code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Map<String, Value>>,
}

impl ErrorFrame {
    fn of(status_code: u16, body: ErrorBody) -> Self {
        Self { error: body.error, message: body.message, status_code, details: body.details }
    }
}

/// Data of a `status` frame: an operation that runs or has ended.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionStatusFrame")]
pub(crate) struct StatusView {
    id: String,
    kind: String,
    label: String,
    state: String,
    started_at: String,
    completed_at: Option<String>,
    duration_ms: Option<i64>,
    summary: Option<String>,
    details: Option<Value>,
}

/// Data of a `complete` frame.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionCompleteFrame")]
pub(crate) struct Complete {
    execution: ExecutionView,
    status_code: u16,
}

/// Data of a `delta` frame: the text of an agent without tools.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionDeltaFrame")]
pub(crate) struct Delta {
    text: String,
}

enum Telling {
    Following(Box<Following>),
    /// The last frame.
    Last(String),
    Over,
}

struct Following {
    state: ApiState,
    id: ExecutionId,
    subscription: Subscription,
    shutdown: CancellationToken,
    /// In reverse order, so that `pop` returns the next frame.
    ready: Vec<String>,
    /// Start times of running operations, by id.
    open: HashMap<String, DateTime<Utc>>,
    is_over: bool,
}

impl Telling {
    async fn next(self) -> Option<(String, Self)> {
        match self {
            Self::Over => None,
            Self::Last(frame) => Some((frame, Self::Over)),
            Self::Following(mut following) => match following.next().await {
                Some(frame) => Some((frame, Self::Following(following))),
                None if following.is_over => Some((following.end().await, Self::Over)),
                // The process stops, or the reader was too slow. The execution goes on; the caller knows its id
                // from the header.
                None => None,
            },
        }
    }
}

impl Following {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.ready.pop() {
                return Some(frame);
            }
            if self.is_over {
                return None;
            }
            let news = tokio::select! {
                news = timeout(KEEP_ALIVE, self.subscription.next()) => news,
                () = self.shutdown.cancelled() => return None,
            };
            match news {
                Err(_) => return Some(": still running\n\n".to_owned()),
                Ok(None) => return None,
                Ok(Some(Frame::Events(events))) => {
                    let frames: Vec<String> = events.iter().filter_map(|event| self.status(event)).collect();
                    self.ready = frames.into_iter().rev().collect();
                }
                Ok(Some(Frame::Resync { .. } | Frame::Text(_))) => {}
                Ok(Some(Frame::Over)) => self.is_over = true,
            }
        }
    }

    /// The frame for an event; `None` for events that are not part of the contract.
    fn status(&mut self, event: &Event) -> Option<String> {
        let data = event.data.as_ref().filter(|_| event.kind == "status")?;
        let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::to_owned);
        let (id, state) = (text("id")?, text("state")?);
        let is_running = state == "running";
        let began = if is_running {
            if self.open.len() < MAX_OPEN {
                self.open.insert(id.clone(), event.at);
            }
            event.at
        } else {
            self.open.remove(&id).unwrap_or(event.at)
        };
        let view = StatusView {
            kind: text("kind")?,
            label: text("label").unwrap_or_default(),
            started_at: timestamp(began),
            completed_at: (!is_running).then(|| timestamp(event.at)),
            duration_ms: (!is_running).then(|| (event.at - began).num_milliseconds().max(0)),
            summary: text("summary"),
            details: data.get("details").filter(|details| !details.is_null()).cloned(),
            id,
            state,
        };
        Some(frame("status", &view))
    }

    /// The last frames: the text of an agent without tools as one delta, then the result.
    async fn end(&self) -> String {
        let recorded = match recorded(&self.state, &TenantScope::Everybody, self.id).await {
            Ok(recorded) => recorded,
            Err(error) => return error_frame(&error.of(self.id)),
        };
        let is_told = !recorded.has_tools && !recorded.calls.model_calls.is_empty();
        let text = recorded
            .output_text
            .clone()
            .filter(|text| recorded.status == ExecutionStatus::Finished && is_told && !text.is_empty());
        let delta = text.map(|text| frame("delta", &Delta { text })).unwrap_or_default();
        let last = match Ending::of(recorded) {
            Ending::Record(execution) => frame("complete", &Complete { execution: *execution, status_code: 201 }),
            Ending::Failed(status, body) => frame("error", &ErrorFrame::of(status.as_u16(), body)),
        };
        delta + &last
    }
}

fn error_frame(error: &ContractError) -> String {
    let (status, body) = error.body();
    frame("error", &ErrorFrame::of(status.as_u16(), body))
}

fn frame(event: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {event}\ndata: {}\n\n", ascii(&data))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stream_frames_are_ascii_without_loss() {
        let data = json!({"text": "grüße 🙂 \r\n \u{2028}"});
        let text = frame("delta", &data);
        assert!(text.is_ascii() && !text.contains('\r'));
        assert!(text.starts_with("event: delta\ndata: {") && text.ends_with("}\n\n"));
        let back = text.trim_end().split_once("data: ").unwrap().1;
        assert_eq!(serde_json::from_str::<Value>(back).unwrap(), data);
        assert!(back.contains("\\u00fc") && back.contains("\\ud83d\\ude42"), "{back}");
    }
}
