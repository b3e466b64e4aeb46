//! `GET /v1/accounts`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;
use uuid::Uuid;

use super::view::{AccountPage, AccountView};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, take_reach},
    openapi::params::Tenants,
    state::ApiState,
};

/// Lists the people who signed in with the OpenID Connect provider.
#[utoipa::path(
    get,
    operation_id = "listAccounts",
    path = "/v1/accounts",
    tag = "keys",
    params(
        Tenants,
        ("after" = Option<String>, Query, description = "`next_after` of the page before"),
        ("limit" = Option<i64>, Query, description = "1 to 200; 100 when absent"),
    ),
    responses((status = 200, description = "Accounts in the order of their ids", body = AccountPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<AccountPage>> {
    principal.need(Scope::KeysWrite)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let (after, limit): (Option<Uuid>, i64) = (params.take("after"), params.limit(100, 200));
    params.finish()?;
    let found = state.store.list_accounts(&reach, after, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_after = found.last().filter(|_| is_full).map(|last| last.id.to_string());
    Ok(Json(AccountPage { accounts: found.into_iter().map(AccountView::from).collect(), next_after }))
}
