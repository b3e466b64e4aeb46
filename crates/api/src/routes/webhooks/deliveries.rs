//! `GET /v1/webhooks/{id}/deliveries`.

use axum::{Json, extract::State};
use longhaul_store::{tenants::api_keys::Scope, webhooks::DeliveryState};

use super::{
    find, own,
    view::{DeliveryPage, DeliveryView},
};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path},
    openapi::params::Limit,
    state::ApiState,
};

/// Lists the deliveries to a webhook, newest first. Those that are over are kept for 14 days.
#[utoipa::path(
    get,
    operation_id = "listDeliveries",
    path = "/v1/webhooks/{id}/deliveries",
    tag = "webhooks",
    params(
        ("id" = String, Path, description = "Id of the webhook"),
        ("state" = Option<String>, Query, description = "`waiting`, `delivered` or `failed`"),
        ("before" = Option<String>, Query, description = "Deliveries before the one with this id"),
        Limit,
    ),
    responses((status = 200, description = "Deliveries", body = DeliveryPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    Path(id): Path<String>,
    mut params: Params,
) -> ApiResult<Json<DeliveryPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let only = params.chosen("state", DeliveryState::ALL, DeliveryState::as_str);
    let (before, limit) = (params.take("before"), params.limit(50, 200));
    params.finish()?;
    let of = own(&principal, &id)?;
    find(&state, of).await?;
    let found = state.store.webhook_deliveries(of, only, before, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_before = found.last().filter(|_| is_full).map(|last| last.id.to_string());
    Ok(Json(DeliveryPage { deliveries: found.into_iter().map(DeliveryView::from).collect(), next_before }))
}
