//! The answer with a file's bytes. A browser stores them and never shows them: callers and models choose the content.

use std::{fmt::Write as _, io, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use longhaul_domain::TenantId;
use longhaul_files::Parts;
use longhaul_store::files::{StoredFile, hex_of};
use tokio::time::timeout;

use crate::{
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// Longest wait for the memory and the bytes of one part.
const READ_WAIT: Duration = Duration::from_secs(60);
/// Policy should a browser show the bytes all the same: no origin, no scripts, no requests.
const POLICY: &str = "sandbox; default-src 'none'";

pub(crate) async fn download(state: &ApiState, tenant: TenantId, file: &StoredFile) -> ApiResult<Response> {
    let mut parts = state.files.parts(tenant, file.hash).await?.ok_or(ApiError::NotFound("file"))?;
    // Read before the head is sent, so that an error has its status.
    let first = next(&mut parts).await?;
    let rest = stream::try_unfold(parts, async |mut parts| {
        // The client sees a body that ends early.
        let part = next(&mut parts).await.map_err(|_| io::Error::other("the file cannot be read"))?;
        Ok::<_, io::Error>(part.map(|part| (part, parts)))
    });
    let body = stream::iter(first.map(Ok)).chain(rest);
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, file.bytes.into());
    let media_type = HeaderValue::from_str(&file.media_type);
    headers.insert(header::CONTENT_TYPE, media_type.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    let disposition = HeaderValue::from_str(&disposition(file.name.as_deref()));
    headers.insert(header::CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", hex_of(&file.hash))) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Reads the next part of a file.
async fn next(parts: &mut Parts) -> ApiResult<Option<Bytes>> {
    Ok(timeout(READ_WAIT, parts.next()).await.map_err(|_| ApiError::Busy)??)
}

/// `attachment` with the name (RFC 6266): in ASCII, and encoded if it has other characters.
fn disposition(name: Option<&str>) -> String {
    let Some(name) = name else { return "attachment".to_owned() };
    let is_plain = |c: char| (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '%');
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain == name {
        return format!("attachment; filename=\"{plain}\"");
    }
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_cannot_break_out() {
        assert_eq!(disposition(None), "attachment");
        assert_eq!(disposition(Some("a b.pdf")), "attachment; filename=\"a b.pdf\"");
        assert_eq!(
            disposition(Some("ü\";x.pdf")),
            "attachment; filename=\"__;x.pdf\"; filename*=UTF-8''%C3%BC%22%3Bx.pdf"
        );
    }
}
