//! `POST /v1/files`.

use std::time::Duration;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::StreamExt;
use longhaul_config::FilesConfig;
use longhaul_domain::TenantId;
use longhaul_fairness::Share;
use longhaul_files::{media_type, memory::SMALL_BYTES};
use longhaul_store::{files::NewUpload, tenants::api_keys::Scope};
use longhaul_telemetry::metrics::{self, FileRefusal};
use tokio::time::{Instant, timeout, timeout_at};

use super::{FileError, FileView};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Params,
    routes::executions::request::idempotency_key,
    state::ApiState,
};

/// Longest wait for memory, and for the body to arrive.
pub(crate) const MEMORY_WAIT: Duration = Duration::from_secs(10);
pub(crate) const BODY_WAIT: Duration = Duration::from_secs(120);
/// Memory is taken in steps of these bytes, as the body arrives.
pub(crate) const MEMORY_STEP: u64 = 256 * 1_024;
/// Least bytes of a body in each window, unless it ends: a slower client would hold memory for long.
const LEAST_BYTES: usize = 160 * 1_024;
const WINDOW: Duration = Duration::from_secs(10);

/// Uploads a file: PNG, JPEG, WebP, PDF or UTF-8 text, at most 20 MiB. The body is the bytes.
///
/// The same bytes under the same name are the same file, so a repetition changes nothing; an `Idempotency-Key` is
/// accepted and not needed. An upload expires after a week by default; what a message names stays with it.
#[utoipa::path(
    post,
    operation_id = "uploadFile",
    path = "/v1/files",
    tag = "files",
    request_body(
        content = ref("#/components/schemas/Bytes"),
        content_type = "application/octet-stream",
        description = "The bytes; their `Content-Type` must fit them",
    ),
    params(
        ("name" = Option<String>, Query, description = "Name, at most 255 characters without `/` and `\\`"),
        ("Idempotency-Key" = Option<String>, Header, description = "Accepted, and not needed"),
    ),
    responses(
        (status = 201, description = "Stored", body = FileView),
        (
            status = 200,
            description = "Stored before (`Idempotent-Replayed: true`); its time begins again",
            body = FileView,
        ),
    ),
)]
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
    let mut held = state.files.memory().begin(principal.tenant());
    let reading = timeout(BODY_WAIT, read(body, length, &mut held));
    let bytes = reading.await.map_err(|_| ApiError::RequestTimeout)??;
    let declared = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("unreadable"));
    let media_type = media_type::accepted(&bytes, declared).map_err(|mismatch| {
        metrics::file_refused(FileRefusal::UnsupportedType);
        FileError::UnsupportedFileType(mismatch.to_string())
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
pub(crate) fn stated_length(headers: &HeaderMap) -> ApiResult<usize> {
    let stated = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match stated {
        Some(length) if length > FilesConfig::FILE_BYTES => Err(too_large()),
        Some(length) => Ok(length),
        None => Ok(FilesConfig::FILE_BYTES),
    }
}

/// Reads a body of about `length` bytes. Its memory is held as it arrives, and given up to a tenant that holds less.
pub(crate) async fn read(body: Body, length: usize, held: &mut Share<TenantId>) -> ApiResult<Bytes> {
    let (mut body, mut bytes) = (body.into_data_stream(), Vec::with_capacity(length));
    let (mut covered, mut window) = (SMALL_BYTES, Window::new());
    held.set_idle();
    loop {
        let chunk = tokio::select! {
            chunk = timeout_at(window.ends, body.next()) => chunk.map_err(|_| ApiError::RequestTimeout)?,
            () = held.asked_back() => return Err(ApiError::Busy),
        };
        let Some(chunk) = chunk else { break };
        // The caller went away and reads no answer.
        let chunk = chunk.map_err(|_| ApiError::invalid("", "the body ends early"))?;
        if bytes.len() + chunk.len() > FilesConfig::FILE_BYTES {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
        window.arrived(chunk.len());
        let missing = (bytes.len() as u64).saturating_sub(covered);
        if missing > 0 {
            let step =
                missing.next_multiple_of(MEMORY_STEP).min(FilesConfig::FILE_BYTES as u64 - (covered - SMALL_BYTES));
            match timeout(MEMORY_WAIT, held.grow(step)).await {
                Ok(true) => covered += step,
                Ok(false) | Err(_) => return Err(ApiError::Busy),
            }
            window = Window::new();
        }
    }
    // What is complete is stored.
    held.set_busy();
    if bytes.is_empty() { Err(ApiError::invalid("", "the body is empty")) } else { Ok(bytes.into()) }
}

/// The time in which the next [`LEAST_BYTES`] must arrive.
struct Window {
    ends: Instant,
    missing: usize,
}

impl Window {
    fn new() -> Self {
        Self { ends: Instant::now() + WINDOW, missing: LEAST_BYTES }
    }

    fn arrived(&mut self, bytes: usize) {
        self.missing = self.missing.saturating_sub(bytes);
        if self.missing == 0 {
            *self = Self::new();
        }
    }
}

fn too_large() -> ApiError {
    metrics::file_refused(FileRefusal::TooLarge);
    ApiError::PayloadTooLarge { limit_bytes: FilesConfig::FILE_BYTES }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use longhaul_files::memory::FileMemory;
    use uuid::Uuid;

    use super::*;

    const TENANT: TenantId = TenantId(Uuid::nil());

    fn memory() -> FileMemory {
        FileMemory::new(2 * FilesConfig::FILE_BYTES as u64)
    }

    #[tokio::test]
    async fn only_an_oversized_body_is_too_large() {
        let chunk = Bytes::from(vec![b'x'; FilesConfig::FILE_BYTES / 2 + 1]);
        let body = |last: std::io::Result<Bytes>| Body::from_stream(stream::iter([Ok(chunk.clone()), last]));
        let oversized = read(body(Ok(chunk.clone())), 0, &mut memory().begin(TENANT)).await.unwrap_err();
        assert!(matches!(oversized, ApiError::PayloadTooLarge { .. }), "{oversized:?}");
        let broken = body(Err(std::io::ErrorKind::ConnectionReset.into()));
        let broken = read(broken, 0, &mut memory().begin(TENANT)).await.unwrap_err();
        assert!(matches!(broken, ApiError::InvalidRequest(_)), "{broken:?}");
    }

    #[tokio::test]
    async fn memory_is_held_as_the_body_arrives() {
        let memory = memory();
        let free = memory.free();
        let chunks = [1, FilesConfig::FILE_BYTES / 2, FilesConfig::FILE_BYTES / 2 - 1];
        let (seen, watched) = (std::sync::Mutex::new(Vec::new()), memory.clone());
        let body = stream::iter(chunks).map(move |length| {
            seen.lock().unwrap().push(free - watched.free());
            assert_eq!(seen.lock().unwrap().len() > 2, free - watched.free() > SMALL_BYTES, "{seen:?}");
            Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; length]))
        });
        let mut held = memory.begin(TENANT);
        let bytes = read(Body::from_stream(body), FilesConfig::FILE_BYTES, &mut held).await.unwrap();
        assert_eq!(bytes.len(), FilesConfig::FILE_BYTES);
        assert!(free - memory.free() <= FilesConfig::FILE_BYTES as u64);
        drop(held);
        assert_eq!(memory.free(), free);
    }

    #[tokio::test(start_paused = true)]
    async fn client_below_the_least_rate_is_cut_off() {
        let bytes = Bytes::from(vec![b'x'; LEAST_BYTES]);
        let body = |pause: Duration, chunk: Bytes| {
            let chunks = stream::iter([(); 4]).then(move |()| {
                let chunk = chunk.clone();
                async move {
                    tokio::time::sleep(pause).await;
                    Ok::<_, std::io::Error>(chunk)
                }
            });
            Body::from_stream(chunks)
        };
        let nearly = WINDOW - Duration::from_secs(1);
        read(body(nearly, bytes.clone()), 0, &mut memory().begin(TENANT)).await.unwrap();
        let slow = read(body(nearly, bytes.slice(1..)), 0, &mut memory().begin(TENANT)).await.unwrap_err();
        assert!(matches!(slow, ApiError::RequestTimeout), "{slow:?}");
    }
}
