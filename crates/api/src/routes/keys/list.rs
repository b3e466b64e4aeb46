//! `GET /v1/keys`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::view::{KeyPage, KeyView};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, read_cursor, take_reach},
    openapi::params::{Cursor, Limit, Tenants},
    paging::PageLength,
    state::ApiState,
};

/// Lists API keys, newest first, without their secrets.
///
/// A revoked or expired key is listed for 90 days.
#[utoipa::path(
    get,
    operation_id = "listKeys",
    path = "/v1/keys",
    tag = "keys",
    params(Tenants, Limit, Cursor),
    responses((status = 200, description = "A page", body = KeyPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<KeyPage>> {
    principal.need(Scope::KeysWrite)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let length = PageLength::take(&mut params);
    let after = params.named("cursor", read_cursor);
    params.finish()?;
    let mut found = state.store.list_api_keys(&reach, after, length.rows()).await?;
    let next_cursor = length.cut(&mut found, |key| key.id.0);
    Ok(Json(KeyPage { keys: found.into_iter().map(KeyView::from).collect(), next_cursor }))
}
