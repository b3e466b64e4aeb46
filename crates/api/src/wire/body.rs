//! Reads the body of a request: large ones, with files in them, take memory from the process's share for files.

use axum::{
    body::Body,
    http::{HeaderMap, header},
};
use bytes::Bytes;
use longhaul_domain::TenantId;
use tokio::time::timeout;

use super::refused::Answer;
use crate::{
    body::in_turn,
    error::ApiError,
    routes::files::upload::{BODY_WAIT, read, stated_length},
    state::ApiState,
};
use longhaul_wire::Fault;

/// Reads and parses a body. Some clients state no media type; what is stated must be JSON.
pub(super) async fn parsed<T: Send>(
    state: &ApiState,
    tenant: TenantId,
    headers: &HeaderMap,
    body: Body,
    parse: impl Fn(&[u8]) -> Result<T, Fault> + Sync,
) -> Answer<T> {
    let stated = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = stated.map(|value| value.split(';').next().unwrap_or_default().trim());
    if media_type.is_some_and(|of| !of.eq_ignore_ascii_case("application/json")) {
        return Err(ApiError::UnsupportedMediaType.into());
    }
    let length = stated_length(headers)?;
    let mut held = state.files.memory().begin(tenant);
    let bytes: Bytes =
        timeout(BODY_WAIT, read(body, length, &mut held)).await.map_err(|_| ApiError::RequestTimeout)??;
    Ok(in_turn(bytes.len(), || parse(&bytes)).await?)
}
