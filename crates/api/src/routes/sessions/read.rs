//! `GET /v1/sessions` and `GET /v1/sessions/{id}`.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_shared::domain::SessionId;
use longhaul_store::{
    api_keys::Scope,
    sessions::{Session, SessionState},
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{SessionPath, find};
use crate::{auth::Principal, error::ApiResult, extract::Params, state::ApiState};

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    #[schema(example = "sess_019a2c3e5b7f7d10a1b2c3d4e5f60718")]
    id: String,
    /// Agent and its pinned version.
    agent: String,
    agent_version: i32,
    /// `idle`, `running`, `waiting` (for a person, a limit, a provider or children) or `ended`.
    #[schema(example = "idle")]
    status: &'static str,
    /// Reason of the wait, while `waiting`.
    wait_reason: Option<&'static str>,
    /// Reason for the end of the last turn: `end_turn`, `requires_action`, `budget_reached`, `interrupted` or
    /// `failed`; null before the first.
    stop_reason: Option<&'static str>,
    /// Execution that answers a message now.
    running: Option<String>,
    /// Messages that wait for their turn.
    queued: i64,
    /// Messages accepted so far.
    turns: i32,
    on_busy: &'static str,
    #[schema(value_type = Object)]
    metadata: Value,
    created_at: DateTime<Utc>,
    /// Time of the last message or answer.
    active_at: DateTime<Utc>,
}

impl From<Session> for SessionView {
    fn from(of: Session) -> Self {
        let (status, wait_reason) = match of.state {
            SessionState::Idle => ("idle", None),
            SessionState::Running => ("running", None),
            SessionState::Waiting(reason) => ("waiting", Some(reason.as_str())),
            SessionState::Ended => ("ended", None),
        };
        Self {
            id: of.id.to_string(),
            agent: of.agent_key,
            agent_version: of.agent_version,
            status,
            wait_reason,
            stop_reason: of.stop_reason.map(|reason| reason.as_str()),
            running: of.running.map(|id| id.to_string()),
            queued: of.queued,
            turns: of.turns,
            on_busy: of.on_busy.as_str(),
            metadata: of.metadata,
            created_at: of.created_at,
            active_at: of.active_at,
        }
    }
}

/// Sessions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionPage {
    sessions: Vec<SessionView>,
    /// Value of `?before=` for the next page; null on the last one.
    next_before: Option<String>,
}

/// Lists the caller's sessions, newest first.
#[utoipa::path(get, operation_id = "listSessions", path = "/v1/sessions", tag = "sessions",
    params(("before" = Option<String>, Query, description = "Sessions older than this one"),
        ("limit" = Option<i64>, Query, description = "1 to 200; 50 when absent")),
    responses((status = 200, description = "Sessions", body = SessionPage)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Principal,
    mut params: Params,
) -> ApiResult<Json<SessionPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let (before, limit) = (params.take::<SessionId>("before"), params.limit(50, 200));
    params.finish()?;
    let found = state.store.list_sessions(&principal.tenant().into(), None, before, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_before = found.last().filter(|_| is_full).map(|last| last.id.to_string());
    Ok(Json(SessionPage { sessions: found.into_iter().map(SessionView::from).collect(), next_before }))
}

/// Reads a session.
#[utoipa::path(get, operation_id = "getSession", path = "/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The session", body = SessionView)))]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Principal,
    SessionPath(id): SessionPath,
) -> ApiResult<Json<SessionView>> {
    principal.need(Scope::ExecutionsRead)?;
    Ok(Json(find(&state, &principal, id).await?.into()))
}
