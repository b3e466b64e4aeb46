//! `POST /v1/keys`.

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_store::tenants::{api_keys::Scope, key_management::NewKey};

use super::{end, holds_all, issued, request::KeyBody, view::KeySecretView};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_json},
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// Creates an API key.
///
/// Needs the scope `keys:write`, and every scope of the new key. Only this answer shows the key.
#[utoipa::path(
    post,
    operation_id = "createKey",
    path = "/v1/keys",
    tag = "keys",
    request_body = ref("#/components/schemas/KeyBody"),
    responses((status = 201, description = "The key", body = KeySecretView)),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<KeySecretView>)> {
    principal.need(Scope::KeysWrite)?;
    let body: KeyBody = read_json(&headers, body, BODY_LIMIT).await?;
    let scopes = body.scopes()?;
    holds_all(&principal, &scopes)?;
    let expires_at = end(&state, &principal, body.expires_at, None)?;
    let tenant = match (&body.org_id, &body.group_id) {
        (None, None) => principal.tenant(),
        (None, Some(_)) => return Err(ApiError::invalid("/group_id", "needs `org_id`")),
        (Some(org), group) => {
            principal.need(Scope::Admin)?;
            state.store.ensure_tenant(org, group.as_deref()).await?.id
        }
    };
    let new = NewKey { tenant, name: &body.name, scopes: &scopes, expires_at };
    let key = issued(state.store.issue_key(&new, &state.pepper).await?)?;
    principal.created(key.id);
    let found = state.store.find_key_of(&tenant.into(), key.id).await?.ok_or(ApiError::NotFound("API key"))?;
    Ok((StatusCode::CREATED, Json(KeySecretView::of(found, &key))))
}
