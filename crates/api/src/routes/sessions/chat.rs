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
use longhaul_domain::{ExecutionId, ExecutionStatus, OnBusy, SessionId, TenantId};
use longhaul_queue::hints::TextDelta;
use longhaul_sdk::approvals::ApprovalsSpec;
use longhaul_store::{
    history::{
        events::Event,
        read::{Bodies, RecordedStep},
    },
    sessions::{Session, StopReason},
    tenants::{api_keys::Scope, scope::TenantScope},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    caller_calls::{is_call_of_caller, pending_below},
    caller_tools::CallerTools,
    create::{Beginning, begin},
    find,
    frame_data::{AttemptResetFrame, DeltaFrame, DoneFrame, FailureFrame, TokenUsage},
    frames::{
        Frame, Hiding, Place, RECORDED, calls_of, is_early, of_call, of_event, of_turn, results_of, step_of, turn_of,
    },
    messages::{Beyond, Content, Message, submit},
    requests::request_frame,
};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_json},
    catalog::Target,
    error::{ApiError, ApiResult},
    event_stream::{self, Subscription},
    extract::Path,
    openapi::params::SubmitKey,
    routes::executions::request::idempotency_key,
    state::ApiState,
    traceparent::traceparent_of,
};

/// Silence after which a comment keeps the connection open.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Header of the answer that names the session.
const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// A message to an agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatBody {
    message: Content,
    /// Session to continue; a new one begins when absent.
    session_id: Option<String>,
    /// Project that a new session is about.
    project_id: Option<String>,
}

/// Sends a message and streams the agent's turn.
///
/// Events and the schemas of their `data`: `delta` (`DeltaFrame`), `tool_use` (`ToolUseFrame`), `tool_result`
/// (`ToolResultFrame`), `attempt_reset` (`AttemptResetFrame`), `status`, `retry`, `sub_agent`, `approval_request` and
/// `approval_resolved` (`EventFrame`), `error` (`FailureFrame`), and one `done` (`DoneFrame`). A comment follows after
/// 15 s of silence. With `session_id`, `Last-Event-ID` and the same message the stream resumes; another message is
/// refused with that header.
#[utoipa::path(
    post,
    operation_id = "chat",
    path = "/api/chat/{agent_id}",
    tag = "sessions",
    request_body = ref("#/components/schemas/ChatBody"),
    params(
        ("agent_id" = String, Path, description = "Key of the agent"),
        SubmitKey,
        ("Last-Event-ID" = Option<String>, Header, description = "Events after this one"),
    ),
    responses((status = 200, description = "The turn", content((String = "text/event-stream")))),
)]
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
    let ChatBody { message, session_id, project_id } = read_json(&headers, body, BODY_LIMIT).await?;
    let (session, is_begun) = match (&session_id, resumes) {
        (Some(_), _) if project_id.is_some() => {
            return Err(ApiError::invalid("/project_id", "is given when the session begins"));
        }
        (Some(text), _) => (text.parse().map_err(|_| ApiError::NotFound("session"))?, false),
        (None, Some(_)) => return Err(ApiError::invalid("/session_id", "is required to resume a stream")),
        (None, None) => {
            // The same key finds the same session, and there the same message.
            let key = key.as_ref().map(|key| format!("chat {key}"));
            let (on_busy, metadata) = (OnBusy::default(), json!({}));
            let agent = agent.clone();
            let new = Beginning { agent, version: None, on_busy, metadata, budget: None, project_id };
            begin(&state, &principal, new, key).await?
        }
    };
    let session = find(&state, &principal, session).await?;
    if session.agent_key != agent {
        return Err(ApiError::NotFound("session"));
    }
    let traceparent = traceparent_of(&headers);
    let message = Message { content: message, policy: None, beyond: Beyond::Refuse, key, traceparent };
    let start = match resumes {
        Some(place) => {
            let is_own = state.store.is_in_session(session.id, place.execution).await?;
            if !is_own {
                return Err(ApiError::NotFound("execution"));
            }
            let resumed = state_of(&state, &principal.tenant().into(), place.execution).await?;
            if !message.content.is_input(&resumed.input) {
                let reason = "is not the message of `Last-Event-ID`; leave that header out to send another one";
                return Err(ApiError::invalid("/message", reason));
            }
            Start::Resumed(place)
        }
        None => {
            let sent = submit(&state, &principal, &session, message).await;
            if is_begun && sent.is_err() {
                // A refused chat leaves nothing behind.
                state.store.delete_session(principal.tenant(), session.id).await?;
            }
            Start::Fresh(Place { execution: sent?.id, seq: 0, frame: 0 })
        }
    };
    follow(&state, &principal, &session, start).await
}

/// Begin of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// The reader has nothing of the execution.
    Fresh(Place),
    /// The reader has everything before this place, and perhaps text of the turn after it.
    Resumed(Place),
}

/// Rules of a session's agent that its frames depend on.
#[derive(Clone)]
pub(super) struct AgentRules {
    /// Names the arguments that are hidden from people.
    approvals: ApprovalsSpec,
    caller: CallerTools,
}

pub(super) async fn rules_of(state: &ApiState, tenant: TenantId, session: &Session) -> ApiResult<AgentRules> {
    let target = Target::Agent(session.agent_key.clone());
    let runnable = state.catalog.resolve(tenant, &target, Some(session.agent_version)).await?;
    Ok(AgentRules { approvals: runnable.agent.approvals.clone(), caller: CallerTools::of(&runnable.agent) })
}

/// Streams the frames of an execution.
async fn follow(state: &ApiState, principal: &Principal, session: &Session, start: Start) -> ApiResult<Response> {
    let rules = rules_of(state, principal.tenant(), session).await?;
    let chat = Chat::open(state, principal.tenant(), session.id, rules, start).await?;
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
pub(super) struct Chat {
    state: ApiState,
    scope: TenantScope,
    session: SessionId,
    execution: ExecutionId,
    subscription: Subscription,
    shutdown: CancellationToken,
    /// Read with the first turn.
    hiding: Option<Hiding>,
    rules: AgentRules,
    /// Frames up to here were sent before.
    skip: Place,
    ready: VecDeque<SseEvent>,
    phase: Phase,
    /// Turn that is written now.
    turn: u32,
    /// Bytes of its text that the reader has, or [`RECORDED`].
    told: usize,
}

impl Chat {
    /// A stream of the frames of an execution.
    ///
    /// # Errors
    /// The process has no slot for another stream, or Postgres is unavailable.
    pub(super) async fn open(
        state: &ApiState,
        tenant: TenantId,
        session: SessionId,
        rules: AgentRules,
        start: Start,
    ) -> ApiResult<Self> {
        let (Start::Fresh(place) | Start::Resumed(place)) = start;
        let after = if place.frame == 0 { place.seq } else { place.seq - 1 };
        let subscription = state.event_streams.subscribe_with_text(tenant, place.execution, after).await?;
        let mut chat = Self {
            state: state.clone(),
            scope: tenant.into(),
            session,
            execution: place.execution,
            subscription,
            shutdown: state.shutdown.clone(),
            hiding: None,
            rules,
            skip: place,
            ready: VecDeque::new(),
            phase: Phase::Following,
            turn: 0,
            told: 0,
        };
        chat.catch_up(start).await?;
        Ok(chat)
    }

    /// True after `done`, or where it cannot be told.
    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Ended && self.ready.is_empty()
    }

    /// Makes the text so far of the turn under way ready, which the reader may have in part. Where it is gone, a
    /// reader that resumes drops the part that it has.
    async fn catch_up(&mut self, start: Start) -> ApiResult<()> {
        let Some(under_way) = self.state.store.turn_under_way(self.execution).await? else { return Ok(()) };
        if !under_way.is_open {
            return Ok(());
        }
        let so_far = self.state.publisher.reply_so_far(self.execution).await;
        match so_far.filter(|so_far| so_far.turn > under_way.recorded) {
            Some(so_far) => self.live(so_far),
            None if matches!(start, Start::Resumed(_)) => self.reset(under_way.recorded + 1),
            None => {}
        }
        Ok(())
    }

    /// Tells the reader that its text of a turn is void.
    fn reset(&mut self, turn: u32) {
        (self.turn, self.told) = (turn, 0);
        let place = Place { execution: self.execution, seq: self.skip.seq, frame: 0 };
        self.ready.push_back(Frame::new("attempt_reset", AttemptResetFrame { turn }).encode(self.session, place));
    }

    /// The next event; `None` after `done`, or if the process stops or the reader was too slow.
    pub(super) async fn next(&mut self) -> Option<SseEvent> {
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
                event_stream::Frame::Events(events) => {
                    for event in events {
                        if let Err(error) = self.push(&event).await {
                            tracing::warn!(error = ?error, "an event of a chat cannot be read");
                            return None;
                        }
                    }
                }
                event_stream::Frame::Text(delta) => self.live(delta),
                event_stream::Frame::Resync { .. } => {}
                event_stream::Frame::Over => self.phase = Phase::Over,
            }
        }
    }

    /// Makes a piece of text ready, if it follows what the reader has. After a lost piece the rest of the turn comes
    /// when it is recorded.
    fn live(&mut self, delta: TextDelta) {
        if delta.turn > self.turn {
            (self.turn, self.told) = (delta.turn, 0);
        }
        // The worker died or the model failed, and the turn is written again.
        if delta.turn == self.turn && delta.offset == 0 && self.told > 0 && self.told != RECORDED {
            self.reset(delta.turn);
        }
        if (delta.turn, delta.offset) != (self.turn, self.told) {
            return;
        }
        self.told += delta.text.len();
        let data = DeltaFrame { text: delta.text, turn: delta.turn, offset: delta.offset };
        let place = Place { execution: self.execution, seq: self.skip.seq, frame: 0 };
        self.ready.push_back(Frame::new("delta", data).encode(self.session, place));
    }

    /// Makes the frames of one event ready.
    async fn push(&mut self, event: &Event) -> ApiResult<()> {
        let frames = match (event.kind.as_str(), step_of(event)) {
            ("turn", Some(step)) => self.of_recorded_turn(event, step).await?,
            ("call", Some(_)) if is_early(event) => Vec::new(),
            ("call", Some(step)) => match self.step(step).await? {
                Some(step) => self.of_result(event.seq, &step).await?,
                None => Vec::new(),
            },
            ("tool_call_pending", _) => self
                .rules
                .caller
                .pending(&self.state, (&self.scope, self.execution), event)
                .await?
                .into_iter()
                .collect(),
            ("child_request", _) if is_call_of_caller(event) => {
                pending_below(&self.state, &self.scope, event).await?.into_iter().collect()
            }
            ("approval_requested" | "question_asked" | "child_request", _) => {
                request_frame(&self.state, &self.scope, event).await?.into_iter().collect()
            }
            _ => {
                let frame = of_event(event);
                let asks_again = frame.as_ref().is_some_and(|frame| frame.name == "retry");
                if asks_again && self.told > 0 && self.told != RECORDED {
                    self.reset(self.turn);
                }
                frame.into_iter().collect()
            }
        };
        self.send(event.seq, frames);
        Ok(())
    }

    /// The frames of a recorded turn, and of its calls that had ended before.
    async fn of_recorded_turn(&mut self, event: &Event, step: i32) -> ApiResult<Vec<Frame>> {
        self.learn_secrets().await?;
        let number = turn_of(event).unwrap_or_default();
        let told = if number == self.turn { self.told } else { 0 };
        // Later pieces of this turn are void.
        (self.turn, self.told) = (number, RECORDED);
        let (Some(step), Some(hiding)) = (self.step(step).await?, &self.hiding) else { return Ok(Vec::new()) };
        let mut frames = of_turn(&step, (number, told), hiding, &self.rules.caller)?;
        let calls = calls_of(&step)?;
        if calls.is_empty() {
            return Ok(frames);
        }
        for early in self.state.store.early_results(self.execution, event.seq).await? {
            let Some(result) = self.step(early).await? else { continue };
            let is_of_turn = |(id, _): &(String, String)| calls.iter().any(|call| call.id == *id);
            if results_of(&result)?.iter().any(is_of_turn) {
                frames.extend(self.of_result(event.seq + 1, &result).await?);
            }
        }
        Ok(frames)
    }

    /// The frames of a result whose turn is the last one before an event. A call that the caller runs may not have
    /// been announced yet.
    async fn of_result(&mut self, before: i32, step: &RecordedStep) -> ApiResult<Vec<Frame>> {
        self.learn_secrets().await?;
        let first = match &self.hiding {
            Some(hiding) => self.rules.caller.unannounced(&self.state, self.execution, (before, step), hiding).await?,
            None => None,
        };
        Ok(first.into_iter().chain(of_call(step)?).collect())
    }

    /// Makes the frames of one event ready, but for those that the reader has. Text stands before the numbered frames.
    fn send(&mut self, seq: i32, frames: Vec<Frame>) {
        let mut number = 0;
        for frame in frames {
            number += usize::from(frame.is_numbered());
            if (seq, number) > (self.skip.seq, self.skip.frame) || self.skip.frame == 0 {
                let place = Place { execution: self.execution, seq, frame: number };
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
            let data = FailureFrame { code: summary.failure_code, message: summary.failure_summary };
            frames.push(Frame::new("error", data));
        }
        let token_usage = TokenUsage {
            input: summary.input_tokens,
            output: summary.output_tokens,
            cached: summary.cached_tokens,
            cache_write: summary.cache_write_tokens,
        };
        let (stop_reason, execution_id) = (reason.as_str(), self.execution.to_string());
        frames.push(Frame::new("done", DoneFrame { token_usage, stop_reason, execution_id }));
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
        self.hiding = Some(Hiding { approvals: self.rules.approvals.clone(), schemas });
        Ok(())
    }
}

async fn state_of(
    state: &ApiState,
    scope: &TenantScope,
    id: ExecutionId,
) -> ApiResult<longhaul_store::executions::read::ExecutionRecord> {
    state.store.get_execution(scope, id).await?.ok_or(ApiError::NotFound("execution"))
}
