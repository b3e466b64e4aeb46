//! `POST` and `GET /v1/sessions/{id}/messages`.

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_domain::{ExecutionId, FileId, INTERACTIVE_QUEUE, OnBusy, SessionId, input_parts::MAX_PARTS};
use longhaul_store::{
    executions::submit::{Idempotency, NewExecution},
    sessions::{Arrival, MAX_QUEUED, Sent, Session},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::{SessionError, SessionPath, find};
use crate::{
    auth::{Principal, Reader},
    body::{BODY_LIMIT, NO_NUL, read_json},
    catalog::{Target, check_web_search},
    error::{ApiError, ApiResult, Violation},
    extract::Params,
    idempotency_error::IdempotencyError,
    openapi::params::{Id, SubmitKey},
    routes::{
        executions::{ExecutionError, request::idempotency_key},
        files::attach::{gone, named_files},
    },
    schema,
    state::ApiState,
    traceparent::traceparent_of,
};

const MAX_LIMIT: i64 = 500;

/// A message to an agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageBody {
    #[schemars(example = "What changed since yesterday?")]
    message: Content,
    /// Policy if another message is answered; the session's when absent.
    on_busy: Option<OnBusy>,
}

/// A text, or texts and files in order.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "MessageContent")]
pub(crate) enum Content {
    Text(#[schemars(length(min = 1), regex(pattern = NO_NUL))] String),
    Parts(#[schemars(length(min = 1, max = MAX_PARTS))] Vec<InputPart>),
}

impl Content {
    /// The input of the execution that answers the message.
    fn input(&self) -> Value {
        match self {
            Self::Text(text) => json!({ "prompt": text }),
            Self::Parts(parts) => json!({ "messages": [{ "role": "user", "content": parts }] }),
        }
    }

    /// True if an execution with this input answers the message.
    pub(super) fn is_input(&self, input: &RawValue) -> bool {
        serde_json::from_str::<Value>(input.get()).is_ok_and(|input| input == self.input())
    }
}

/// A part of a message.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum InputPart {
    Text {
        #[schemars(length(min = 1), regex(pattern = NO_NUL))]
        text: String,
    },
    /// An uploaded file (`POST /v1/files`).
    File {
        #[schemars(regex(pattern = "^file_[0-9a-f]{32}$"))]
        file_id: String,
    },
}

/// Place of a message in its session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SentView {
    session_id: String,
    /// Execution that answers the message.
    execution_id: String,
    /// True if another message is answered first.
    is_queued: bool,
    /// Execution that the policy cancelled.
    stopped: Option<String>,
}

/// One message of a transcript.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageView {
    /// Number in the session, from 1.
    seq: i32,
    execution_id: String,
    /// `role` is `system`, `user`, `assistant` or `tool`. A user's `parts` are texts, images and files.
    #[schema(value_type = Object)]
    message: Value,
    /// First and last message that this one stands for, if it is a summary.
    replaces: Option<(i32, i32)>,
    /// True if it is a reply that an interrupt cut off.
    interrupted: bool,
    /// True if its text was erased; `message` says so.
    erased: bool,
}

/// Messages of a transcript, in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessagePage {
    messages: Vec<MessageView>,
    /// Value of `?after=` for the next page; null on the last one.
    next_after: Option<i32>,
}

/// Sends a message to the session's agent. When this answers, the message is committed.
#[utoipa::path(
    post,
    operation_id = "sendMessage",
    path = "/v1/sessions/{id}/messages",
    tag = "sessions",
    request_body = ref("#/components/schemas/MessageBody"),
    params(Id, SubmitKey),
    responses(
        (status = 202, description = "The execution that answers it", body = SentView),
        (status = 200, description = "Stored before under the same key", body = SentView),
    ),
)]
pub(crate) async fn send(
    State(state): State<ApiState>,
    principal: Principal,
    SessionPath(id): SessionPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<SentView>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let key = idempotency_key(&headers)?;
    let session = find(&state, &principal, id).await?;
    let MessageBody { message, on_busy } = read_json(&headers, body, BODY_LIMIT).await?;
    let traceparent = traceparent_of(&headers);
    let message = Message { content: message, policy: on_busy, beyond: Beyond::Wait, key, traceparent };
    let sent = submit(&state, &principal, &session, message).await?;
    let view = |id: ExecutionId, is_queued, stopped: Option<ExecutionId>| SentView {
        session_id: session.id.to_string(),
        execution_id: id.to_string(),
        is_queued,
        stopped: stopped.map(|id| id.to_string()),
    };
    Ok(match sent {
        Accepted { id, is_new: false, .. } => (StatusCode::OK, Json(view(id, false, None))),
        Accepted { id, is_queued, stopped, .. } => (StatusCode::ACCEPTED, Json(view(id, is_queued, stopped))),
    })
}

/// Lists the transcript: what was said before the message that is answered now.
#[utoipa::path(
    get,
    operation_id = "listMessages",
    path = "/v1/sessions/{id}/messages",
    tag = "sessions",
    params(
        Id,
        ("after" = Option<i32>, Query, description = "Messages after this number"),
        ("limit" = Option<i64>, Query, description = "1 to 500; 100 when absent"),
    ),
    responses((status = 200, description = "Messages in order", body = MessagePage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    SessionPath(id): SessionPath,
    mut params: Params,
) -> ApiResult<Json<MessagePage>> {
    principal.need(Scope::ExecutionsRead)?;
    let (after, limit) = (params.take("after").unwrap_or(0), params.limit(100, MAX_LIMIT));
    params.finish()?;
    find(&state, &principal, id).await?;
    let through = state.store.fold_session(id).await?;
    let found = state.store.session_messages(id, after, through, limit).await?;
    let next_after = found.last().filter(|last| last.seq < through).map(|last| last.seq);
    let messages = found.into_iter().map(|message| MessageView {
        seq: message.seq,
        execution_id: message.execution.to_string(),
        message: serde_json::from_slice(&message.bytes).unwrap_or_default(),
        replaces: message.replaces,
        interrupted: message.is_interrupted,
        erased: message.is_erased,
    });
    Ok(Json(MessagePage { messages: messages.collect(), next_after }))
}

/// A message and the request that carried it.
pub(super) struct Message {
    pub(super) content: Content,
    /// Policy if another message is answered; the session's when absent.
    pub(super) policy: Option<OnBusy>,
    pub(super) beyond: Beyond,
    pub(super) key: Option<String>,
    pub(super) traceparent: Option<String>,
}

/// A message that is committed.
pub(super) struct Accepted {
    pub(super) id: ExecutionId,
    /// False if the same request under the same key was committed before.
    pub(super) is_new: bool,
    pub(super) is_queued: bool,
    /// Execution that the policy cancelled.
    pub(super) stopped: Option<ExecutionId>,
}

/// Treatment of a message where no session more may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// It is stored and waits for a slot.
    Wait,
    /// Nothing is stored.
    Refuse,
}

/// Stores the execution that answers a message.
pub(super) async fn submit(
    state: &ApiState,
    principal: &Principal,
    session: &Session,
    message: Message,
) -> ApiResult<Accepted> {
    let (policy, beyond) = (message.policy, message.beyond);
    let (execution, files) = plan(state, principal, session, message).await?;
    let limit = state.session_limit().await?;
    let arrival = Arrival { policy, refuse_above: limit.filter(|_| beyond == Beyond::Refuse) };
    let sent = state.store.send_message(session.id, (&execution, &files), arrival).await?;
    let (id, is_new, is_queued, stopped) = match sent {
        Sent::Started(id) => (id, true, false, None),
        Sent::Queued { id, stopped } => (id, true, true, stopped),
        Sent::Existing(id) => (id, false, false, None),
        Sent::KeyReused(id) => return Err(IdempotencyError::IdempotencyKeyReused(Some(id)).into()),
        Sent::Busy(id) => return Err(SessionError::SessionBusy(id).into()),
        Sent::TooManyQueued => return Err(SessionError::TooManyMessages { max: MAX_QUEUED }.into()),
        Sent::TooManyRunning => {
            return Err(SessionError::TooManySessions { max: state.options.max_running_sessions }.into());
        }
        Sent::BudgetSpent => return Err(SessionError::SessionBudgetSpent.into()),
        Sent::FileGone => return Err(gone("/message")),
        Sent::Full => return Err(SessionError::SessionFull.into()),
        Sent::NotFound => return Err(ApiError::NotFound("session")),
    };
    if is_new {
        state.publisher.wake(&execution.queue, id);
    }
    if let Some(stopped) = stopped {
        state.publisher.look([stopped]);
    }
    Ok(Accepted { id, is_new, is_queued, stopped })
}

async fn plan(
    state: &ApiState,
    principal: &Principal,
    session: &Session,
    Message { content, key, traceparent, .. }: Message,
) -> ApiResult<(NewExecution, Vec<FileId>)> {
    let target = Target::Agent(session.agent_key.clone());
    let runnable = state.catalog.resolve(principal.tenant(), &target, Some(session.agent_version)).await?;
    let agent = (runnable.pinned.agent_version_id, runnable.pinned.agent_key.as_str());
    state.catalog.permit(agent, principal, &state.options.contract.org_id).await?;
    check_web_search(&runnable.agent, state.options.web_search)?;
    let hash = hash(session.id, &content);
    let input = content.input();
    let violations: Vec<Violation> = schema::violations(&runnable.input, &input, "/message").await?;
    if !violations.is_empty() {
        return Err(ExecutionError::InvalidInput(violations).into());
    }
    let place = |at: &str| at.replacen("/messages/0/content", "/message", 1);
    let files = named_files(state, principal.tenant(), &input, place).await?;
    if let Some(model) = runnable.unpriced(runnable.pinned.budget.as_ref(), &state.prices) {
        return Err(ExecutionError::PriceUnknown { model }.into());
    }
    let id = state.store.new_execution_id().await?;
    let execution = NewExecution {
        queue: INTERACTIVE_QUEUE.to_owned(),
        submitted_by: Some(principal.key_id()),
        traceparent,
        idempotency: key.map(|key| Idempotency { key, request_hash: hash }),
        ..NewExecution::of(id, principal.tenant(), runnable.pinned.clone(), input.to_string())
    };
    Ok((execution, files))
}

fn hash(session: SessionId, content: &Content) -> Vec<u8> {
    let hash = Sha256::new();
    let hash = match content {
        Content::Text(text) => hash.chain_update(format!("message {session} ")).chain_update(text),
        Content::Parts(parts) => {
            let parts = serde_json::to_vec(parts).unwrap_or_default();
            hash.chain_update(format!("parts {session} ")).chain_update(parts)
        }
    };
    hash.finalize().to_vec()
}
