//! `POST /v1/runs/{key}/budget`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::ExecutionId;
use longhaul_store::tenants::api_keys::Scope;

use super::find;
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_body},
    error::ApiResult,
    extract::Path,
    routes::executions::budget::{BudgetView, set_caps},
    state::ApiState,
};

/// Sets the caps of the budget of all calls of a durable run; each is a total.
///
/// Wakes calls that wait for the budget and now fit.
#[utoipa::path(
    post,
    operation_id = "raiseRunBudget",
    path = "/v1/runs/{key}/budget",
    tag = "runs",
    request_body = ref("#/components/schemas/RaiseBody"),
    params(("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The budget as it stands", body = BudgetView)),
)]
pub(crate) async fn raise(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<BudgetView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let run = find(&state, &principal, &key).await?;
    let bytes = read_body(&headers, body, BODY_LIMIT).await?;
    // A run owns its budget as the root of a tree does.
    Ok(Json(set_caps(&state, &run.tenant_id.into(), ExecutionId(run.id.0), &bytes).await?))
}
