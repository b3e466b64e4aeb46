//! `POST /v1/sessions/{id}/budget`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::ExecutionId;
use longhaul_store::tenants::api_keys::Scope;

use super::{SessionPath, find};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_body},
    error::ApiResult,
    openapi::params::Id,
    routes::executions::budget::{BudgetView, set_caps},
    state::ApiState,
};

/// Sets the caps of the budget of all messages of a session.
///
/// Wakes the message that waits for the budget, if it now fits.
#[utoipa::path(
    post,
    operation_id = "raiseSessionBudget",
    path = "/v1/sessions/{id}/budget",
    tag = "sessions",
    request_body = ref("#/components/schemas/RaiseBody"),
    params(Id),
    responses((status = 200, description = "The budget as it stands", body = BudgetView)),
)]
pub(crate) async fn raise(
    State(state): State<ApiState>,
    principal: Principal,
    SessionPath(id): SessionPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<BudgetView>> {
    principal.need(Scope::ExecutionsWrite)?;
    find(&state, &principal, id).await?;
    let bytes = read_body(&headers, body, BODY_LIMIT).await?;
    // A session owns its budget as the root of a tree does.
    Ok(Json(set_caps(&state, &principal.tenant().into(), ExecutionId(id.0), &bytes).await?))
}
