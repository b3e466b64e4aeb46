//! `GET /v1/files/{id}` and `GET /v1/files/{id}/content`.

use axum::{Json, extract::State, response::Response};
use longhaul_store::tenants::api_keys::Scope;

use super::{FilePath, FileView, download::download, find};
use crate::openapi::params::Id;
use crate::{auth::Reader, error::ApiResult, state::ApiState};

/// Shows an upload.
#[utoipa::path(
    get,
    operation_id = "getFile",
    path = "/v1/files/{id}",
    tag = "files",
    params(Id),
    responses((status = 200, description = "The upload", body = FileView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    FilePath(id): FilePath,
) -> ApiResult<Json<FileView>> {
    principal.need(Scope::ExecutionsRead)?;
    Ok(Json(find(&state, &principal, id).await?.into()))
}

/// Downloads an upload, always as an attachment.
#[utoipa::path(
    get,
    operation_id = "downloadFile",
    path = "/v1/files/{id}/content",
    tag = "files",
    params(Id),
    responses(
        (
            status = 200,
            description = "The bytes",
            content_type = "application/octet-stream",
            body = ref("#/components/schemas/Bytes"),
        ),
    ),
)]
pub(crate) async fn content(
    State(state): State<ApiState>,
    principal: Reader,
    FilePath(id): FilePath,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsRead)?;
    let file = find(&state, &principal, id).await?;
    download(&state, principal.tenant(), &file).await
}
