//! `DELETE /v1/webhooks/{id}`.

use axum::{extract::State, http::StatusCode};
use longhaul_store::tenants::api_keys::Scope;

use super::own;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Deletes a webhook with its deliveries.
#[utoipa::path(
    delete,
    operation_id = "deleteWebhook",
    path = "/v1/webhooks/{id}",
    tag = "webhooks",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 204, description = "Deleted")),
)]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    principal.need(Scope::ExecutionsWrite)?;
    let is_gone = state.store.delete_webhook(own(&principal, &id)?).await?;
    if is_gone { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::NotFound("webhook")) }
}
