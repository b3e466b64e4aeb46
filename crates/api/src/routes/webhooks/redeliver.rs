//! `POST /v1/webhooks/{id}/redeliver` and `/test`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_store::tenants::api_keys::Scope;

use super::{
    WebhookError, find, own,
    request::RedeliverBody,
    view::{RedeliveredView, TestedView},
};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_json},
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Sends deliveries again.
///
/// They keep their ids, and are tried for another 72 hours.
#[utoipa::path(
    post,
    operation_id = "redeliverWebhook",
    path = "/v1/webhooks/{id}/redeliver",
    tag = "webhooks",
    request_body = ref("#/components/schemas/RedeliverBody"),
    params(("id" = String, Path, description = "Id of the webhook")),
    responses((status = 200, description = "Their number", body = RedeliveredView)),
)]
pub(crate) async fn redeliver(
    State(state): State<ApiState>,
    principal: Principal,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<RedeliveredView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let of = own(&principal, &id)?;
    let endpoint = find(&state, of).await?;
    let body: RedeliverBody = read_json(&headers, body, BODY_LIMIT).await?;
    if body.delivery_id.is_some() == body.failed_since.is_some() {
        return Err(ApiError::invalid("", "needs either `delivery_id` or `failed_since`"));
    }
    if endpoint.disabled.is_some() {
        return Err(WebhookError::WebhookDisabled.into());
    }
    let redelivered = state.store.redeliver(of, body.delivery_id, body.failed_since).await?;
    if redelivered == 0 && body.delivery_id.is_some() {
        return Err(ApiError::NotFound("delivery"));
    }
    Ok(Json(RedeliveredView { redelivered }))
}

/// Sends an event of the type `webhook.test`.
#[utoipa::path(post, operation_id = "testWebhook", path = "/v1/webhooks/{id}/test", tag = "webhooks",
    params(("id" = String, Path, description = "Id of the webhook")),
    responses((status = 200, description = "The delivery", body = TestedView)))]
pub(crate) async fn test(
    State(state): State<ApiState>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<Json<TestedView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let of = own(&principal, &id)?;
    find(&state, of).await?;
    let sent = state.store.test_webhook(of).await?.ok_or(WebhookError::WebhookDisabled)?;
    Ok(Json(TestedView { delivery_id: sent.to_string() }))
}
