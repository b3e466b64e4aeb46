//! `DELETE /v1/indexes/{name}`: removes an index with everything in it.

use axum::{extract::State, http::StatusCode};
use longhaul_store::tenants::api_keys::Scope;

use super::find;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Removes an index with its documents and chunks.
#[utoipa::path(
    delete,
    operation_id = "removeIndex",
    path = "/v1/indexes/{name}",
    tag = "indexes",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 204, description = "Removed")),
)]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    principal.need(Scope::DefinitionsWrite)?;
    find(&state, principal.tenant(), &name).await?;
    let is_removed = state.indexes.remove_index(principal.tenant(), &name).await?;
    if is_removed { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::NotFound("index")) }
}
