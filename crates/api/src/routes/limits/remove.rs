//! `DELETE /v1/limits/{key}`: executions that wait for the limit go on.

use axum::{extract::State, http::StatusCode};

use super::view::read_key;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{Params, Path},
    routes::definitions::put::owner,
    state::ApiState,
};

/// Removes a limit that was set here.
///
/// Limits of definitions and agents are removed with their versions.
#[utoipa::path(delete, operation_id = "removeLimit", path = "/v1/limits/{key}", tag = "limits",
    params(
        ("key" = String, Path, description = "As it was set"),
        ("shared" = Option<bool>, Query, description = "The one about all tenants; needs the scope `admin`"),
    ),
    responses((status = 204, description = "Removed")))]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
) -> ApiResult<StatusCode> {
    let owner = owner(&principal, params)?;
    let key = read_key(&state, &key).await?;
    let is_removed = state.store.remove_limit(owner, &key).await?;
    if is_removed { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::NotFound("limit")) }
}
