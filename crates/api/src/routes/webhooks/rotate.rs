//! `POST /v1/webhooks/{id}/rotate`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_store::{tenants::api_keys::Scope, webhooks::EndpointKind};

use super::{find, own, request::RotateBody, view::WebhookSecretView};
use crate::{
    auth::Principal,
    body::read_optional,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Time for which the secret before signs as well, when the request names none, in seconds.
const OVERLAP: u32 = 86_400;

/// Gives a webhook a new secret.
///
/// The secret before signs as well for a time, so that receivers can change over.
#[utoipa::path(
    post,
    operation_id = "rotateWebhook",
    path = "/v1/webhooks/{id}/rotate",
    tag = "webhooks",
    request_body = ref("#/components/schemas/RotateBody"),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The webhook with its new secret", body = WebhookSecretView)),
)]
pub(crate) async fn rotate(
    State(state): State<ApiState>,
    principal: Principal,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<WebhookSecretView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let of = own(&principal, &id)?;
    if find(&state, of).await?.kind != EndpointKind::Standard {
        return Err(ApiError::invalid("", "only a webhook of the kind `standard` has a secret"));
    }
    let body: RotateBody = read_optional(&headers, body).await?;
    let rotated = state.store.rotate_webhook(of, body.overlap_seconds.unwrap_or(OVERLAP)).await?;
    rotated.ok_or(ApiError::NotFound("webhook"))?;
    Ok(Json(WebhookSecretView::of(&state, find(&state, of).await?)))
}
