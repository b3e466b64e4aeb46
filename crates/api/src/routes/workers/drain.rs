//! `POST /v1/workers/{id}/drain`.

use axum::{Json, extract::State, http::StatusCode};
use longhaul_store::tenants::api_keys::Scope;

use super::{find, id, view::WorkerView};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Asks a worker to drain.
///
/// Needs the scope `admin`. The worker learns of it within two seconds, claims nothing more, ends its attempts as on
/// SIGTERM, and exits; a supervisor may start another in its place. Repeating it changes nothing.
#[utoipa::path(
    post,
    operation_id = "drainWorker",
    path = "/v1/workers/{id}/drain",
    tag = "operation",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 202, description = "The worker", body = WorkerView)),
)]
pub(crate) async fn drain(
    State(state): State<ApiState>,
    principal: Principal,
    Path(text): Path<String>,
) -> ApiResult<(StatusCode, Json<WorkerView>)> {
    principal.need(Scope::Admin)?;
    let id = id(&text)?;
    if !state.store.drain_worker(id).await? {
        return Err(ApiError::NotFound("live worker"));
    }
    Ok((StatusCode::ACCEPTED, Json(find(&state, id).await?.into())))
}
