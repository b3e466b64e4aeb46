//! `POST /v1/keys/{id}/rotate`.

use std::time::Duration;

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_store::tenants::{api_keys::Scope, key_management::Rotation};

use super::{end, holds_all, id, issued, request::KeyRotationBody, view::KeySecretView};
use crate::{
    auth::Principal,
    body::read_optional,
    error::{ApiError, ApiResult},
    extract::{Params, Path, take_reach},
    openapi::params::Tenants,
    state::ApiState,
};

/// Time for which the old key is still accepted, when the request names none, in seconds.
const OVERLAP: u32 = 86_400;

/// Creates an API key in the place of another.
///
/// Needs the scope `keys:write`, and every scope of the old key. The new key has its name and its scopes. The old one
/// is accepted for `overlap_seconds` more, unless it ends earlier. Only this answer shows the new key; after a lost
/// answer, rotate the old key again.
#[utoipa::path(
    post,
    operation_id = "rotateKey",
    path = "/v1/keys/{id}/rotate",
    tag = "keys",
    request_body = ref("#/components/schemas/KeyRotationBody"),
    params(("id" = String, Path, description = "Id of the old key"), Tenants),
    responses((status = 201, description = "The new key", body = KeySecretView)),
)]
pub(crate) async fn rotate(
    State(state): State<ApiState>,
    principal: Principal,
    Path(text): Path<String>,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<KeySecretView>)> {
    principal.need(Scope::KeysWrite)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let old = state.store.find_key_of(&reach, id(&text)?).await?.ok_or(ApiError::NotFound("API key"))?;
    holds_all(&principal, &old.scopes)?;
    let body: KeyRotationBody = read_optional(&headers, body).await?;
    let rotation = Rotation {
        tenant: old.tenant_id,
        id: old.id,
        overlap: Duration::from_secs(body.overlap_seconds.unwrap_or(OVERLAP).into()),
        expires_at: end(&state, &principal, body.expires_at, old.expires_at)?,
    };
    let key = issued(state.store.rotate_key(&rotation, &state.pepper).await?)?;
    let found = state.store.find_key_of(&reach, key.id).await?.ok_or(ApiError::NotFound("API key"))?;
    Ok((StatusCode::CREATED, Json(KeySecretView::of(found, &key))))
}
