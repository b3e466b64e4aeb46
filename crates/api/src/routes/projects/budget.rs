//! `POST /v1/projects/{id}/budget`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::ExecutionId;
use longhaul_store::tenants::api_keys::Scope;

use super::{ProjectPath, find};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_body},
    error::ApiResult,
    openapi::params::Id,
    routes::executions::budget::{BudgetView, set_caps},
    state::ApiState,
};

/// Sets the caps of a project's budget; each is a total.
#[utoipa::path(
    post,
    operation_id = "raiseProjectBudget",
    path = "/v1/projects/{id}/budget",
    tag = "projects",
    request_body = ref("#/components/schemas/RaiseBody"),
    params(Id),
    responses((status = 200, description = "The budget as it stands", body = BudgetView)),
)]
pub(crate) async fn raise(
    State(state): State<ApiState>,
    principal: Principal,
    ProjectPath(id): ProjectPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<BudgetView>> {
    principal.need(Scope::ExecutionsWrite)?;
    find(&state, &principal, id).await?;
    let bytes = read_body(&headers, body, BODY_LIMIT).await?;
    // A project owns its budget as the root of a tree does.
    Ok(Json(set_caps(&state, &principal.tenant().into(), ExecutionId(id.0), &bytes).await?))
}
