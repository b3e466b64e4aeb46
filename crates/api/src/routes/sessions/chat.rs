//! `POST /api/chat/{agent_id}`: sends a message and streams what the agent does, until exactly one `done`.
//!
//! The stream is a view of the execution's events and steps, so it resumes on any API process, and a caller that
//! leaves does not stop the execution.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use futures::stream;
use longhaul_sdk::approvals::ApprovalsSpec;
use longhaul_shared::domain::{ExecutionId, ExecutionStatus, OnBusy, SessionId};
use longhaul_store::{
    api_keys::Scope,
    events::Event,
    history::{Bodies, RecordedStep},
    sessions::{Session, StopReason},
    tenants::TenantScope,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    create::{Beginning, begin},
    find,
    frames::{Frame, Hiding, Place, of_call, of_event, of_turn},
    messages::{Message, submit},
};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    catalog::Target,
    error::{ApiError, ApiResult},
    extract::Path,
    hub::{self, Subscription},
    routes::executions::request::idempotency_key,
    state::{ApiState, TextDelta},
};

/// Silence after which a comment keeps the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Header of the answer that names the session.
const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// A message to an agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatBody {
    #[schemars(length(min = 1), regex(pattern = NO_NUL))]
    message: String,
    /// Session to continue; a new one begins when absent.
    session_id: Option<String>,
}

/// Sends a message and streams the agent's turn.
///
/// Events: `status`, `delta`, `tool_use`, `tool_result`, `approval_request`, `approval_resolved`, `sub_agent`, `retry`,
/// `error`, and one `done`. With `Last-Event-ID` and the same body and `Idempotency-Key` the stream resumes.
#[utoipa::path(post, operation_id = "chat", path = "/api/chat/{agent_id}", tag = "sessions", request_body = ref("#/components/schemas/ChatBody"),
    params(("agent_id" = String, Path, description = "Key of the agent"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key gives the same execution"),
        ("Last-Event-ID" = Option<String>, Header, description = "Events after this one")),
    responses((status = 200, description = "The turn", content((String = "text/event-stream")))))]
pub(crate) async fn chat(
    State(state): State<ApiState>,
    principal: Principal,
    Path(agent): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsWrite)?;
    let key = idempotency_key(&headers)?;
    let resumes: Option<Place> = match headers.get("last-event-id") {
        Some(value) => Some(value.to_str().unwrap_or_default().parse()?),
        None => None,
    };
    let ChatBody { message, session_id } = read_json(&headers, body, BODY_LIMIT).await?;
    let session = match (&session_id, resumes) {
        (Some(text), _) => text.parse().map_err(|_| ApiError::NotFound("session"))?,
        (None, Some(_)) => return Err(ApiError::invalid("/session_id", "is required to resume a stream")),
        (None, None) => {
            // The same key finds the same session, and there the same message.
            let key = key.as_ref().map(|key| format!("chat {key}"));
            let (on_busy, metadata) = (OnBusy::default(), json!({}));
            begin(&state, &principal, Beginning { agent: agent.clone(), version: None, on_busy, metadata, key })
                .await?
                .0
        }
    };
    let session = find(&state, &principal, session).await?;
    if session.agent_key != agent {
        return Err(ApiError::NotFound("session"));
    }
    let message = Message { text: message, key, traceparent: (state.hooks.traceparent)(&headers) };
    let place = match resumes {
        Some(place) => {
            let is_own = state.store.is_in_session(session.id, place.execution).await?;
            if !is_own {
                return Err(ApiError::NotFound("execution"));
            }
            place
        }
        None => {
            let sent = submit(&state, &principal, &session, message, None).await?;
            Place { execution: sent.id, seq: 0, frame: 0 }
        }
    };
    follow(&state, &principal, &session, place).await
}

/// Streams the frames of an execution after `place`.
async fn follow(state: &ApiState, principal: &Principal, session: &Session, place: Place) -> ApiResult<Response> {
    let after = if place.frame == 0 { place.seq } else { place.seq - 1 };
    let subscription = state.hub.subscribe_with_text(principal.tenant(), place.execution, after).await?;
    let target = Target::Agent(session.agent_key.clone());
    let runnable = state.catalog.resolve(principal.tenant(), &target, Some(session.agent_version)).await?;
    let chat = Chat {
        state: state.clone(),
        scope: principal.tenant().into(),
        session: session.id,
        execution: place.execution,
        subscription,
        shutdown: state.shutdown.clone(),
        hiding: None,
        approvals: runnable.agent.approvals.clone(),
        skip: place,
        ready: VecDeque::new(),
        phase: Phase::Following,
        turn: 0,
        told: 0,
    };
    let frames =
        stream::unfold(chat, |mut chat| async { chat.next().await.map(|event| (Ok::<_, Infallible>(event), chat)) });
    let mut response = Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    if let Ok(id) = HeaderValue::from_str(&session.id.to_string()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
    Ok(response)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Following,
    /// No event will follow; `done` is next.
    Over,
    Ended,
}

/// One stream.
struct Chat {
    state: ApiState,
    scope: TenantScope,
    session: SessionId,
    execution: ExecutionId,
    subscription: Subscription,
    shutdown: CancellationToken,
    /// Read with the first turn.
    hiding: Option<Hiding>,
    approvals: ApprovalsSpec,
    /// Frames up to here were sent before.
    skip: Place,
    ready: VecDeque<SseEvent>,
    phase: Phase,
    /// Turn that is written now.
    turn: u32,
    /// Bytes of its text that the reader has.
    told: usize,
}

impl Chat {
    /// The next event; `None` after `done`, or if the process stops or the reader was too slow.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match self.phase {
                Phase::Ended => return None,
                Phase::Over => {
                    self.phase = Phase::Ended;
                    if let Err(error) = self.end().await {
                        tracing::warn!(error = ?error, "the end of a chat cannot be read");
                        return None;
                    }
                    continue;
                }
                Phase::Following => {}
            }
            let frame = tokio::select! {
                frame = self.subscription.next() => frame?,
                () = self.shutdown.cancelled() => return None,
            };
            match frame {
                hub::Frame::Events(events) => {
                    for event in events {
                        if let Err(error) = self.push(&event).await {
                            tracing::warn!(error = ?error, "an event of a chat cannot be read");
                            return None;
                        }
                    }
                }
                hub::Frame::Text(delta) => self.live(delta),
                hub::Frame::Resync { .. } => {}
                hub::Frame::Over => self.phase = Phase::Over,
            }
        }
    }

    /// Makes a piece of text ready, if it follows what the reader has. After a lost piece the rest of the turn comes
    /// when it is recorded.
    fn live(&mut self, delta: TextDelta) {
        if delta.turn > self.turn {
            (self.turn, self.told) = (delta.turn, 0);
        }
        if (delta.turn, delta.offset) != (self.turn, self.told) {
            return;
        }
        self.told += delta.text.len();
        let data = json!({ "text": delta.text, "turn": delta.turn, "offset": delta.offset });
        let place = Place { execution: self.execution, seq: self.skip.seq, frame: 0 };
        self.ready.push_back(Frame::new("delta", data).encode(self.session, place));
    }

    /// Makes the frames of one event ready.
    async fn push(&mut self, event: &Event) -> ApiResult<()> {
        let frames = match (event.kind.as_str(), step_of(event)) {
            ("turn", Some(seq)) => {
                let turn = event.data.as_ref().and_then(|data| data.get("turn")).cloned().unwrap_or_default();
                self.learn_secrets().await?;
                let number = turn.as_u64().and_then(|turn| u32::try_from(turn).ok()).unwrap_or_default();
                let told = if number == self.turn { self.told } else { 0 };
                // Later pieces of this turn are void.
                (self.turn, self.told) = (number, usize::MAX);
                match (self.step(seq).await?, &self.hiding) {
                    (Some(step), Some(hiding)) => of_turn(&step, &turn, told, hiding)?,
                    (_, _) => Vec::new(),
                }
            }
            ("call", Some(seq)) => match self.step(seq).await? {
                Some(step) => of_call(&step)?,
                None => Vec::new(),
            },
            _ => {
                let frame = of_event(event);
                if frame.as_ref().is_some_and(|frame| frame.name == "retry") {
                    // The turn is asked again: what was written of it is void.
                    self.told = 0;
                }
                frame.into_iter().collect()
            }
        };
        self.send(event.seq, frames);
        Ok(())
    }

    fn send(&mut self, seq: i32, frames: Vec<Frame>) {
        for (index, frame) in frames.into_iter().enumerate() {
            let place = Place { execution: self.execution, seq, frame: index + 1 };
            if (place.seq, place.frame) > (self.skip.seq, self.skip.frame) || self.skip.frame == 0 {
                self.ready.push_back(frame.encode(self.session, place));
            }
        }
    }

    /// Makes `error`, if it failed, and `done` ready.
    async fn end(&mut self) -> ApiResult<()> {
        let record = state_of(&self.state, &self.scope, self.execution).await?;
        let summary = record.summary;
        let reason = StopReason::of_end(summary.status, summary.failure_code.as_deref());
        let mut frames = Vec::new();
        if summary.status == ExecutionStatus::Failed {
            let (code, message) = (&summary.failure_code, &summary.failure_summary);
            frames.push(Frame::new("error", json!({ "code": code, "message": message })));
        }
        let usage = json!({ "input": summary.input_tokens, "output": summary.output_tokens });
        let done = json!({ "token_usage": usage, "stop_reason": reason.as_str(), "execution_id": self.execution.0 });
        frames.push(Frame::new("done", done));
        self.send(summary.event_seq + 1, frames);
        Ok(())
    }

    async fn step(&self, seq: i32) -> ApiResult<Option<RecordedStep>> {
        Ok(self.state.store.list_steps(self.execution, seq - 1, 1, Bodies::Read).await?.pop())
    }

    /// Reads the schemas of the tools, which are pinned with the prompt.
    async fn learn_secrets(&mut self) -> ApiResult<()> {
        if self.hiding.is_some() {
            return Ok(());
        }
        let body = self.state.store.prompt_body(self.execution).await?;
        let pinned: Value = body.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let mut schemas = Map::new();
        for tool in pinned["tools"].as_array().into_iter().flatten() {
            if let Some(name) = tool["name"].as_str() {
                schemas.insert(name.to_owned(), tool["parameters"].clone());
            }
        }
        self.hiding = Some(Hiding { approvals: self.approvals.clone(), schemas });
        Ok(())
    }
}

async fn state_of(
    state: &ApiState,
    scope: &TenantScope,
    id: ExecutionId,
) -> ApiResult<longhaul_store::executions::ExecutionRecord> {
    state.store.get_execution(scope, id).await?.ok_or(ApiError::NotFound("execution"))
}

/// Number of the step that an event is about.
fn step_of(event: &Event) -> Option<i32> {
    event.data.as_ref()?.get("step")?.as_i64()?.try_into().ok()
}
