//! `GET /v1/executions/{id}/artifacts` and the download of one.

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, FileId};
use longhaul_store::{
    files::{StoredFile, hex_of},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::{Principal, Reader},
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Path},
    openapi::params::Id,
    routes::files::download::download,
    state::ApiState,
};

/// A file that an execution left.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Artifact {
    file_id: String,
    /// Name; a later file of the same name does not replace an earlier one.
    name: Option<String>,
    /// Media type.
    r#type: String,
    /// Length in bytes.
    size: u64,
    /// SHA-256 of the bytes, in hexadecimal.
    sha256: String,
    created_at: DateTime<Utc>,
}

impl From<StoredFile> for Artifact {
    fn from(file: StoredFile) -> Self {
        Self {
            file_id: file.id.to_string(),
            sha256: hex_of(&file.hash),
            name: file.name,
            r#type: file.media_type,
            size: file.bytes,
            created_at: file.created_at,
        }
    }
}

/// The files of an execution, the oldest first; at most 1,000.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ArtifactPage {
    artifacts: Vec<Artifact>,
}

/// Lists the files that an execution's calls left. They live as long as the execution.
#[utoipa::path(
    get,
    operation_id = "listArtifactPage",
    path = "/v1/executions/{id}/artifacts",
    tag = "executions",
    params(Id),
    responses((status = 200, description = "Its files", body = ArtifactPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    ExecutionPath(id): ExecutionPath,
) -> ApiResult<Json<ArtifactPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let artifacts = find(&state, &principal, id).await?.into_iter().map(Artifact::from).collect();
    Ok(Json(ArtifactPage { artifacts }))
}

/// Downloads a file of an execution by its id, or the latest of its name; always as an attachment.
#[utoipa::path(
    get,
    operation_id = "downloadArtifact",
    path = "/v1/executions/{id}/artifacts/{file}",
    tag = "executions",
    params(
        ("id" = String, Path, description = "Id of the execution"),
        ("file" = String, Path, description = "Id or name of the file"),
    ),
    responses(
        (
            status = 200,
            description = "The bytes",
            content_type = "application/octet-stream",
            body = ref("#/components/schemas/Bytes"),
        ),
    ),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    Path((id, file)): Path<(String, String)>,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsRead)?;
    let id: ExecutionId = id.parse().map_err(|_| ApiError::NotFound("execution"))?;
    let artifacts = find(&state, &principal, id).await?;
    let wanted: Option<FileId> = file.parse().ok();
    let is_wanted = |one: &&StoredFile| match wanted {
        Some(id) => one.id == id,
        None => one.name.as_deref() == Some(&file),
    };
    let found = artifacts.iter().rfind(is_wanted).ok_or(ApiError::NotFound("artifact"))?;
    download(&state, principal.tenant(), found).await
}

async fn find(state: &ApiState, principal: &Principal, id: ExecutionId) -> ApiResult<Vec<StoredFile>> {
    state.store.artifacts(&principal.reach(), id).await?.ok_or(ApiError::NotFound("execution"))
}
