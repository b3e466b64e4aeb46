//! `DELETE /v1/indexes/{name}/documents/{id}`: removes a document with its chunks.

use axum::{extract::State, http::StatusCode};
use longhaul_store::tenants::api_keys::Scope;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    routes::indexes::find,
    state::ApiState,
};

/// Removes a document with its chunks.
#[utoipa::path(delete, operation_id = "removeDocument", path = "/v1/indexes/{name}/documents/{id}", tag = "indexes",
    params(("name" = String, Path, description = "The index"), ("id" = String, Path, description = "The document")),
    responses((status = 204, description = "Removed")))]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    Path((name, id)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    principal.need(Scope::DefinitionsWrite)?;
    find(&state, principal.tenant(), &name).await?;
    let is_known = !id.contains('\0') && state.indexes.remove_document(principal.tenant(), &name, &id).await?;
    if is_known { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::NotFound("document")) }
}
