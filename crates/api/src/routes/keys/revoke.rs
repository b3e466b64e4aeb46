//! `DELETE /v1/keys/{id}`.

use axum::{extract::State, http::StatusCode};
use longhaul_store::tenants::api_keys::Scope;

use super::id;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{Params, Path, take_reach},
    openapi::params::Tenants,
    state::ApiState,
};

/// Revokes an API key; all processes refuse it within 10 seconds.
///
/// Needs the scope `keys:write`. A key may revoke itself, and keys with more scopes than it has.
#[utoipa::path(
    delete,
    operation_id = "revokeKey",
    path = "/v1/keys/{id}",
    tag = "keys",
    params(("id" = String, Path, description = "Its id"), Tenants),
    responses((status = 204, description = "Revoked, or it was before")),
)]
pub(crate) async fn revoke(
    State(state): State<ApiState>,
    principal: Principal,
    Path(text): Path<String>,
    mut params: Params,
) -> ApiResult<StatusCode> {
    principal.need(Scope::KeysWrite)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let hash = state.store.revoke_key(&reach, id(&text)?).await?.ok_or(ApiError::NotFound("API key"))?;
    state.keys.forget(&hash);
    Ok(StatusCode::NO_CONTENT)
}
