//! Ends of sessions: `POST …/interrupt`, `POST …/end`, `DELETE`.

use axum::{Json, extract::State, http::StatusCode};
use longhaul_store::{
    sessions::{SessionDeletion, Stopped},
    tenants::api_keys::Scope,
};

use super::{SessionError, SessionPath, find, read::SessionView};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    openapi::params::Id,
    state::ApiState,
};

/// Stops the turn under way, and keeps what was said. Does nothing when the session is idle.
#[utoipa::path(
    post,
    operation_id = "interruptSession",
    path = "/v1/sessions/{id}/interrupt",
    tag = "sessions",
    params(Id),
    responses((status = 200, description = "The session", body = SessionView)),
)]
pub(crate) async fn interrupt(
    State(state): State<ApiState>,
    principal: Principal,
    SessionPath(id): SessionPath,
) -> ApiResult<Json<SessionView>> {
    principal.need(Scope::ExecutionsWrite)?;
    match state.store.interrupt_session(principal.tenant(), id).await? {
        Stopped::Stopped(execution) => state.publisher.look([execution]),
        Stopped::Idle => {}
        Stopped::NotFound => return Err(ApiError::NotFound("session")),
    }
    Ok(Json(find(&state, &principal, id).await?.into()))
}

/// Ends an idle session. A later message reopens it.
#[utoipa::path(
    post,
    operation_id = "endSession",
    path = "/v1/sessions/{id}/end",
    tag = "sessions",
    params(Id),
    responses((status = 200, description = "The session", body = SessionView)),
)]
pub(crate) async fn end(
    State(state): State<ApiState>,
    principal: Principal,
    SessionPath(id): SessionPath,
) -> ApiResult<Json<SessionView>> {
    principal.need(Scope::ExecutionsWrite)?;
    state.store.end_session(principal.tenant(), id).await?;
    let session = find(&state, &principal, id).await?;
    match session.running {
        Some(running) => Err(SessionError::SessionBusy(running).into()),
        None => Ok(Json(session.into())),
    }
}

/// Deletes a session with its transcript, and erases the texts of its executions.
#[utoipa::path(
    delete,
    operation_id = "deleteSession",
    path = "/v1/sessions/{id}",
    tag = "sessions",
    params(Id),
    responses((status = 204, description = "It is gone")),
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    principal: Principal,
    SessionPath(id): SessionPath,
) -> ApiResult<StatusCode> {
    principal.need(Scope::ExecutionsWrite)?;
    find(&state, &principal, id).await?;
    match state.store.delete_session(principal.tenant(), id).await? {
        SessionDeletion::NotEnded(open) => Err(SessionError::SessionBusy(open).into()),
        SessionDeletion::Done(erased) => {
            state.forget_replies(erased).await;
            Ok(StatusCode::NO_CONTENT)
        }
    }
}
