//! `POST /v1/webhooks`.

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_store::{
    tenants::api_keys::Scope,
    webhooks::{Created, EndpointOf},
};
use uuid::Uuid;

use super::{WebhookError, find, request::Request, view::WebhookSecretView};
use crate::{auth::Principal, error::ApiResult, state::ApiState};

/// Creates a webhook.
///
/// Only this answer and that of a rotation show its secret. A webhook of another kind than `standard` has none.
#[utoipa::path(
    post,
    operation_id = "createWebhook",
    path = "/v1/webhooks",
    tag = "webhooks",
    request_body = ref("#/components/schemas/WebhookBody"),
    responses((status = 201, description = "The webhook", body = WebhookSecretView)),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<WebhookSecretView>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let request = Request::read(&state, &principal, (&headers, body), None).await?;
    let of = EndpointOf { tenant: principal.tenant(), id: Uuid::now_v7() };
    let max = state.options.max_webhooks;
    if state.store.create_webhook(&request.written(of), max).await? == Created::TooMany {
        return Err(WebhookError::TooManyWebhooks { max }.into());
    }
    principal.created(of.id);
    let view = WebhookSecretView::of(&state, find(&state, of).await?);
    Ok((StatusCode::CREATED, Json(view)))
}
