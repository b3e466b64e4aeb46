//! `PUT /v1/webhooks/{id}`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_store::tenants::api_keys::Scope;

use super::{find, own, request::Request, view::WebhookView};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Replaces a webhook.
///
/// Its secret stays. Its failures are forgotten, and what waits is sent at once.
#[utoipa::path(
    put,
    operation_id = "replaceWebhook",
    path = "/v1/webhooks/{id}",
    tag = "webhooks",
    request_body = ref("#/components/schemas/WebhookBody"),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The webhook", body = WebhookView)),
)]
pub(crate) async fn replace(
    State(state): State<ApiState>,
    principal: Principal,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<WebhookView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let of = own(&principal, &id)?;
    let old = find(&state, of).await?;
    let request = Request::read(&state, &principal, (&headers, body), Some(old.kind)).await?;
    if !state.store.replace_webhook(&request.written(of)).await? {
        return Err(ApiError::NotFound("webhook"));
    }
    Ok(Json(find(&state, of).await?.into()))
}
