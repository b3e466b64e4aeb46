//! `POST /v1/files`.

use std::{error::Error as _, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::LengthLimitError;
use longhaul_files::media_type;
use longhaul_shared::{
    config::FilesConfig,
    telemetry::metrics::{self, FileRefusal},
};
use longhaul_store::{files::NewUpload, tenants::api_keys::Scope};
use tokio::time::timeout;

use super::FileView;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Params,
    routes::executions::request::idempotency_key,
    state::ApiState,
};

/// Longest wait for memory, and for the body to arrive.
const MEMORY_WAIT: Duration = Duration::from_secs(10);
const BODY_WAIT: Duration = Duration::from_secs(120);

/// Uploads a file: PNG, JPEG, WebP, PDF or UTF-8 text, at most 20 MiB. The body is the bytes.
///
/// The same bytes under the same name are the same file, so a repetition changes nothing; an `Idempotency-Key` is
/// accepted and not needed. An upload expires after a week by default; what a message names stays with it.
#[utoipa::path(post, operation_id = "uploadFile", path = "/v1/files", tag = "files",
    request_body(content = ref("#/components/schemas/Bytes"), content_type = "application/octet-stream", description = "The bytes; their `Content-Type` must fit them"),
    params(("name" = Option<String>, Query, description = "Name, at most 255 characters without `/` and `\\`"),
        ("Idempotency-Key" = Option<String>, Header, description = "Accepted, and not needed")),
    responses((status = 201, description = "Stored", body = FileView),
        (status = 200, description = "Stored before (`Idempotent-Replayed: true`); its time begins again", body = FileView)))]
pub(crate) async fn upload(
    State(state): State<ApiState>,
    principal: Principal,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsWrite)?;
    idempotency_key(&headers)?;
    let name = params.text("name");
    if name.as_deref().is_some_and(|name| !media_type::is_safe_name(name)) {
        params.violation("name", "must have 1 to 255 characters and none of `/`, `\\` and control characters");
    }
    params.finish()?;
    let length = stated_length(&headers)?;
    let memory = timeout(MEMORY_WAIT, state.files.memory().hold(length as u64)).await;
    let _held = memory.map_err(|_| ApiError::Busy)?;
    let bytes = read(body).await?;
    let declared = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("unreadable"));
    let media_type = media_type::accepted(&bytes, declared).map_err(|mismatch| {
        metrics::file_refused(FileRefusal::UnsupportedType);
        ApiError::UnsupportedFileType(mismatch.to_string())
    })?;
    let hash = state.files.put(principal.tenant(), &bytes).await?;
    let (tenant, length, kept) = (principal.tenant(), bytes.len() as u64, state.files.upload_kept());
    let (file, is_new) = state.store.put_upload(NewUpload { tenant, hash, length, media_type, name, kept }).await?;
    metrics::file_uploaded();
    principal.created(file.id);
    let location = format!("/v1/files/{}", file.id);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(FileView::from(file))).into_response();
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    if !is_new {
        let replayed = HeaderName::from_static("idempotent-replayed");
        response.headers_mut().insert(replayed, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Length of the body; the limit if it is not stated.
fn stated_length(headers: &HeaderMap) -> ApiResult<usize> {
    let stated = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match stated {
        Some(length) if length > FilesConfig::FILE_BYTES => Err(too_large()),
        Some(length) => Ok(length),
        None => Ok(FilesConfig::FILE_BYTES),
    }
}

async fn read(body: Body) -> ApiResult<Bytes> {
    let bytes = match timeout(BODY_WAIT, axum::body::to_bytes(body, FilesConfig::FILE_BYTES)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) if is_length(&error) => return Err(too_large()),
        // The caller went away and reads no answer.
        Ok(Err(_)) => return Err(ApiError::invalid("", "the body ends early")),
        Err(_) => return Err(ApiError::RequestTimeout),
    };
    if bytes.is_empty() { Err(ApiError::invalid("", "the body is empty")) } else { Ok(bytes) }
}

/// True if the body is longer than its limit.
fn is_length(error: &axum::Error) -> bool {
    error.source().is_some_and(|source| source.is::<LengthLimitError>())
}

fn too_large() -> ApiError {
    metrics::file_refused(FileRefusal::TooLarge);
    ApiError::PayloadTooLarge { limit_bytes: FilesConfig::FILE_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_an_oversized_body_is_too_large() {
        let chunk = Bytes::from(vec![b'x'; FilesConfig::FILE_BYTES / 2 + 1]);
        let body = |last: std::io::Result<Bytes>| Body::from_stream(futures::stream::iter([Ok(chunk.clone()), last]));
        let oversized = read(body(Ok(chunk.clone()))).await.unwrap_err();
        assert!(matches!(oversized, ApiError::PayloadTooLarge { .. }), "{oversized:?}");
        let broken = read(body(Err(std::io::ErrorKind::ConnectionReset.into()))).await.unwrap_err();
        assert!(matches!(broken, ApiError::InvalidRequest(_)), "{broken:?}");
    }
}
