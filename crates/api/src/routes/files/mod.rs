//! `/v1/files`: uploads, which messages name (docs/design/files.md).

pub(crate) mod attach;
pub(crate) mod download;
mod error;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod upload;

use axum::{extract::FromRequestParts, http::request::Parts};
use chrono::{DateTime, Utc};
use longhaul_domain::FileId;
use longhaul_store::files::{StoredFile, hex_of};
use serde::Serialize;
use utoipa::ToSchema;

pub(crate) use error::FileError;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// An upload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileView {
    /// Id by which a message names it.
    #[schema(example = "file_019a2c3e5b7f7d10a1b2c3d4e5f60718")]
    file_id: String,
    /// Media type, by the bytes.
    #[schema(example = "application/pdf")]
    r#type: String,
    /// Length in bytes.
    size: u64,
    /// SHA-256 of the bytes, in hexadecimal.
    sha256: String,
    name: Option<String>,
    created_at: DateTime<Utc>,
    /// End of the upload. Messages that name it keep the bytes longer.
    expires_at: Option<DateTime<Utc>>,
}

impl From<StoredFile> for FileView {
    fn from(file: StoredFile) -> Self {
        Self {
            file_id: file.id.to_string(),
            sha256: hex_of(&file.hash),
            r#type: file.media_type,
            size: file.bytes,
            name: file.name,
            created_at: file.created_at,
            expires_at: file.expires_at,
        }
    }
}

/// The file id of a path.
pub(crate) struct FilePath(pub(crate) FileId);

impl FromRequestParts<ApiState> for FilePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or(ApiError::NotFound("file"))
    }
}

/// The caller's upload of that id.
async fn find(state: &ApiState, principal: &Principal, id: FileId) -> ApiResult<StoredFile> {
    let found = state.store.find_uploads(principal.tenant(), &[id]).await?;
    found.into_iter().next().ok_or(ApiError::NotFound("file"))
}
