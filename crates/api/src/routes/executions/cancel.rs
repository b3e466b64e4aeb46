//! `POST /v1/executions/{id}/cancel`.

use axum::{Json, extract::State, http::StatusCode};
use longhaul_domain::ExecutionId;
use longhaul_store::{executions::control::Cancelled, tenants::api_keys::Scope};

use super::{ExecutionError, view::Execution};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::ExecutionPath,
    openapi::params::Id,
    state::ApiState,
};

/// Maximum number of descendants per statement.
const CHUNK: i64 = 500;
/// Maximum number of statements per request.
const LEVELS: usize = 8;

/// Ends an execution and everything it started as FAILED `cancelled`.
///
/// It ends at once if no worker holds it, otherwise within seconds. Idempotent: an execution that was cancelled
/// before is returned as it stands; one that ended in another way is a conflict.
#[utoipa::path(
    post,
    operation_id = "cancelExecution",
    path = "/v1/executions/{id}/cancel",
    tag = "executions",
    params(Id),
    responses(
        (status = 200, description = "It is cancelled, now or before", body = Execution),
        (status = 202, description = "Its worker was told", body = Execution),
    ),
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
) -> ApiResult<(StatusCode, Json<Execution>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let cancelled = state.store.cancel_execution(principal.tenant(), id).await?;
    let status = match cancelled {
        Cancelled::Ended | Cancelled::Before => StatusCode::OK,
        Cancelled::Requested => StatusCode::ACCEPTED,
        Cancelled::AlreadyOver(status) => return Err(ExecutionError::ExecutionIsTerminal(status).into()),
        Cancelled::NotFound => return Err(ApiError::NotFound("execution")),
    };
    if cancelled != Cancelled::Before {
        state.publisher.look([id]);
    }
    cancel_descendants(&state, id).await;
    let record = state.store.get_execution(&principal.reach(), id).await?.ok_or(ApiError::NotFound("execution"))?;
    Ok((status, Json(record.into())))
}

/// Cancels the rest of the tree of a cancelled execution, level by level. If this fails or stops early, the sweep
/// cancels what is left.
pub(crate) async fn cancel_descendants(state: &ApiState, id: ExecutionId) {
    for _ in 0..LEVELS {
        match state.store.cancel_descendants(CHUNK).await {
            Ok(cancelled) if cancelled.is_empty() => break,
            Ok(cancelled) => state.publisher.look(cancelled),
            Err(error) => {
                tracing::warn!(execution.id = %id, error = %error, "descendants are left to the sweep");
                break;
            }
        }
    }
}
