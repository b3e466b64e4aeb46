//! `DELETE /v1/schedules/{key}`.

use axum::{extract::State, http::StatusCode};
use longhaul_store::tenants::api_keys::Scope;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Deletes a schedule with its history. A run under way goes on.
#[utoipa::path(
    delete,
    operation_id = "deleteSchedule",
    path = "/v1/schedules/{key}",
    tag = "schedules",
    params(("key" = String, Path, description = "Its key")),
    responses((status = 204, description = "Deleted")),
)]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
) -> ApiResult<StatusCode> {
    principal.need(Scope::ExecutionsWrite)?;
    let is_gone = !key.contains('\0') && state.store.delete_schedule(principal.tenant(), &key).await?;
    if is_gone { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::NotFound("schedule")) }
}
