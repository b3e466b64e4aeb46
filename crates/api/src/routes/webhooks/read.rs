//! `GET /v1/webhooks` and `GET /v1/webhooks/{id}`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::{
    find, own,
    view::{WebhookList, WebhookView},
};
use crate::{auth::Reader, error::ApiResult, extract::Path, state::ApiState};

/// Lists the caller's webhooks.
#[utoipa::path(get, operation_id = "listWebhooks", path = "/v1/webhooks", tag = "webhooks",
    responses((status = 200, description = "In the order of their creation", body = WebhookList)))]
pub(crate) async fn list(State(state): State<ApiState>, principal: Reader) -> ApiResult<Json<WebhookList>> {
    principal.need(Scope::ExecutionsRead)?;
    let found = state.store.webhooks(principal.tenant(), None).await?;
    Ok(Json(WebhookList { webhooks: found.into_iter().map(WebhookView::from).collect() }))
}

/// Reads a webhook.
#[utoipa::path(
    get,
    operation_id = "getWebhook",
    path = "/v1/webhooks/{id}",
    tag = "webhooks",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The webhook", body = WebhookView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    Path(id): Path<String>,
) -> ApiResult<Json<WebhookView>> {
    principal.need(Scope::ExecutionsRead)?;
    Ok(Json(find(&state, own(&principal, &id)?).await?.into()))
}
