//! `DELETE /v1/files/{id}`.

use axum::{extract::State, http::StatusCode};
use longhaul_store::tenants::api_keys::Scope;

use super::FilePath;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    openapi::params::Id,
    state::ApiState,
};

/// Deletes an upload. Executions and sessions that it is attached to keep its bytes.
#[utoipa::path(
    delete,
    operation_id = "deleteFile",
    path = "/v1/files/{id}",
    tag = "files",
    params(Id),
    responses((status = 204, description = "Deleted")),
)]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    FilePath(id): FilePath,
) -> ApiResult<StatusCode> {
    principal.need(Scope::ExecutionsWrite)?;
    if state.store.delete_upload(principal.tenant(), id).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::NotFound("file"))
    }
}
