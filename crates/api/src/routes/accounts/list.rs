//! `GET /v1/accounts`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::view::{AccountPage, AccountView};
use crate::{
    auth::Principal,
    error::ApiResult,
    extract::{Params, read_cursor, take_reach},
    paging::PageLength,
    state::ApiState,
};

/// Lists the people who signed in with the OpenID Connect provider.
#[utoipa::path(get, operation_id = "listAccounts", path = "/v1/accounts", tag = "keys",
    params(("org_id" = Option<String>, Query, description = "Of this organisation; needs the scope `admin`"),
        ("group_id" = Option<String>, Query, description = "Of this group of `org_id`"),
        ("all_tenants" = Option<bool>, Query, description = "Of all tenants; needs the scope `admin`"),
        ("limit" = Option<i64>, Query, description = "1 to 200; 50 when absent"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before")),
    responses((status = 200, description = "A page", body = AccountPage)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Principal,
    mut params: Params,
) -> ApiResult<Json<AccountPage>> {
    principal.need(Scope::KeysWrite)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let length = PageLength::take(&mut params);
    let after = params.named("cursor", read_cursor);
    params.finish()?;
    let mut found = state.store.list_accounts(&reach, after, length.rows()).await?;
    let next_cursor = length.cut(&mut found, |account| account.id.0);
    Ok(Json(AccountPage { accounts: found.into_iter().map(AccountView::from).collect(), next_cursor }))
}
