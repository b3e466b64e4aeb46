//! `POST /v1/accounts/{id}/disable` and `/enable`.

use axum::{Json, extract::State};
use longhaul_domain::ApiKeyId;
use longhaul_store::tenants::api_keys::Scope;
use uuid::Uuid;

use super::view::AccountView;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{Params, Path, take_reach},
    openapi::params::Tenants,
    state::ApiState,
};

/// Disables an account: the person cannot sign in, and its sessions end within 10 seconds.
///
/// Keys that the person created stay valid.
#[utoipa::path(
    post,
    operation_id = "disableAccount",
    path = "/v1/accounts/{id}/disable",
    tag = "keys",
    params(("id" = String, Path, description = "Its id"), Tenants),
    responses((status = 200, description = "The account", body = AccountView)),
)]
pub(crate) async fn disable(
    state: State<ApiState>,
    principal: Principal,
    id: Path<String>,
    params: Params,
) -> ApiResult<Json<AccountView>> {
    set(state, principal, id, params, true).await
}

/// Enables an account again.
#[utoipa::path(
    post,
    operation_id = "enableAccount",
    path = "/v1/accounts/{id}/enable",
    tag = "keys",
    params(("id" = String, Path, description = "Its id"), Tenants),
    responses((status = 200, description = "The account", body = AccountView)),
)]
pub(crate) async fn enable(
    state: State<ApiState>,
    principal: Principal,
    id: Path<String>,
    params: Params,
) -> ApiResult<Json<AccountView>> {
    set(state, principal, id, params, false).await
}

async fn set(
    State(state): State<ApiState>,
    principal: Principal,
    Path(id): Path<String>,
    mut params: Params,
    is_disabled: bool,
) -> ApiResult<Json<AccountView>> {
    principal.need(Scope::KeysWrite)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let none = ApiError::NotFound("account");
    let Ok(id) = Uuid::parse_str(&id).map(ApiKeyId) else { return Err(none) };
    let Some(hash) = state.store.set_account_disabled(&reach, id, is_disabled).await? else { return Err(none) };
    state.keys.forget(&hash);
    let account = state.store.find_account(&reach, id).await?.ok_or(none)?;
    Ok(Json(account.into()))
}
