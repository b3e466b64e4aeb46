//! `POST` and `GET /v1/sessions/{id}/messages`.

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_shared::domain::{ExecutionId, MAX_DEADLINE, OnBusy, SessionId};
use longhaul_store::{
    api_keys::Scope,
    sessions::{MAX_QUEUED, Sent, Session},
    submit::{Idempotency, NewExecution},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::{SessionPath, find};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    catalog::Target,
    error::{ApiError, ApiResult, Violation},
    extract::Params,
    routes::executions::request::idempotency_key,
    schema,
    state::ApiState,
};

/// Queue of the messages of sessions.
const QUEUE: &str = "default";
/// Priority of the messages of sessions: a person waits for the answer.
const PRIORITY: i16 = 9;
const MAX_LIMIT: i64 = 500;

/// A message to an agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageBody {
    #[schemars(length(min = 1), regex(pattern = NO_NUL), example = "What changed since yesterday?")]
    message: String,
    /// Policy if another message is answered; the session's when absent.
    on_busy: Option<OnBusy>,
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
}

/// Messages of a transcript, in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessagePage {
    messages: Vec<MessageView>,
    /// Value of `?after=` for the next page; null on the last one.
    next_after: Option<i32>,
}

/// Sends a message to the session's agent. When this answers, the message is committed.
#[utoipa::path(post, operation_id = "sendMessage", path = "/v1/sessions/{id}/messages", tag = "sessions", request_body = ref("#/components/schemas/MessageBody"),
    params(("id" = String, Path, description = "Its id"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key gives the same execution")),
    responses((status = 202, description = "The execution that answers it", body = SentView),
        (status = 200, description = "Stored before under the same key", body = SentView)))]
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
    let message = Message { text: message, key, traceparent: (state.hooks.traceparent)(&headers) };
    let sent = submit(&state, &principal, &session, message, on_busy).await?;
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
#[utoipa::path(get, operation_id = "listMessages", path = "/v1/sessions/{id}/messages", tag = "sessions",
    params(("id" = String, Path, description = "Its id"), ("after" = Option<i32>, Query, description = "Messages after this number"),
        ("limit" = Option<i64>, Query, description = "1 to 500; 100 when absent")),
    responses((status = 200, description = "Messages in order", body = MessagePage)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Principal,
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
    });
    Ok(Json(MessagePage { messages: messages.collect(), next_after }))
}

/// A message and the request that carried it.
pub(super) struct Message {
    pub(super) text: String,
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

/// Stores the execution that answers a message.
pub(super) async fn submit(
    state: &ApiState,
    principal: &Principal,
    session: &Session,
    message: Message,
    policy: Option<OnBusy>,
) -> ApiResult<Accepted> {
    let execution = plan(state, principal, session, message).await?;
    let (id, is_new, is_queued, stopped) = match state.store.send_message(session.id, &execution, policy).await? {
        Sent::Started(id) => (id, true, false, None),
        Sent::Queued { id, stopped } => (id, true, true, stopped),
        Sent::Existing(id) => (id, false, false, None),
        Sent::KeyReused(id) => return Err(ApiError::IdempotencyKeyReused(id)),
        Sent::Busy(id) => return Err(ApiError::SessionBusy(id)),
        Sent::TooManyQueued => return Err(ApiError::TooManyMessages { max: MAX_QUEUED }),
        Sent::Full => return Err(ApiError::SessionFull),
        Sent::NotFound => return Err(ApiError::NotFound("session")),
    };
    if is_new {
        (state.hooks.wake)(&execution.queue, id);
    }
    if let Some(stopped) = stopped {
        (state.hooks.announce)(stopped);
    }
    Ok(Accepted { id, is_new, is_queued, stopped })
}

async fn plan(
    state: &ApiState,
    principal: &Principal,
    session: &Session,
    Message { text, key, traceparent }: Message,
) -> ApiResult<NewExecution> {
    let target = Target::Agent(session.agent_key.clone());
    let runnable = state.catalog.resolve(principal.tenant(), &target, Some(session.agent_version)).await?;
    let agent = (runnable.agent_version_id, runnable.agent_key.as_str());
    state.catalog.permit(agent, principal, &state.options.contract.org_id).await?;
    let hash = hash(session.id, &text);
    let input = json!({ "prompt": text });
    let violations: Vec<Violation> = schema::violations(&runnable.input, &input, "/message").await?;
    if !violations.is_empty() {
        return Err(ApiError::InvalidInput(violations));
    }
    if let Some(model) = runnable.unpriced(runnable.budget.as_ref(), &state.prices) {
        return Err(ApiError::PriceUnknown { model });
    }
    Ok(NewExecution {
        id: state.store.new_execution_id().await?,
        tenant_id: principal.tenant(),
        definition_key: runnable.definition_key.clone(),
        definition_version_id: runnable.definition_version_id,
        agent_key: runnable.agent_key.clone(),
        agent_version_id: runnable.agent_version_id,
        queue: QUEUE.to_owned(),
        serve_key: runnable.serve_key.clone(),
        priority: PRIORITY,
        metadata: json!({}),
        input: input.to_string(),
        run_at: None,
        deadline: runnable.deadline,
        deadline_is_near: runnable.deadline < MAX_DEADLINE,
        active_timeout: runnable.active_timeout,
        retry_of: None,
        submitted_by: Some(principal.key_id()),
        traceparent,
        idempotency: key.map(|key| Idempotency { key, request_hash: hash }),
        budget: runnable.budget.clone(),
        overrides: None,
    })
}

fn hash(session: SessionId, message: &str) -> Vec<u8> {
    Sha256::new().chain_update(format!("message {session} ")).chain_update(message).finalize().to_vec()
}
