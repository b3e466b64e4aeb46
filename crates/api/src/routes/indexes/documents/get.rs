//! `GET /v1/indexes/{name}/documents/{id}`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::Path,
    routes::indexes::{find, view::DocumentView},
    state::ApiState,
};

/// Returns one document: the data that is kept beside its chunks.
#[utoipa::path(get, operation_id = "getDocument", path = "/v1/indexes/{name}/documents/{id}", tag = "indexes",
    params(("name" = String, Path, description = "The index"), ("id" = String, Path, description = "The document")),
    responses((status = 200, description = "The document", body = DocumentView)))]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    Path((name, id)): Path<(String, String)>,
) -> ApiResult<Json<DocumentView>> {
    principal.need(Scope::DefinitionsRead)?;
    let index = find(&state, principal.tenant(), &name).await?;
    if id.contains('\0') {
        return Err(ApiError::NotFound("document"));
    }
    let found = state.store.known_documents(&index, &[id]).await?;
    let document = found.into_iter().next().ok_or(ApiError::NotFound("document"))?;
    Ok(Json(document.into()))
}
