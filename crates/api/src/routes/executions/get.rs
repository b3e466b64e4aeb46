//! `GET /v1/executions/{id}`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::{budget::BudgetView, pending_calls::pending_calls, view::Execution};
use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params, take_reach},
    openapi::params::Id,
    state::ApiState,
};

/// Returns one execution in full.
#[utoipa::path(
    get,
    operation_id = "getExecution",
    path = "/v1/executions/{id}",
    tag = "executions",
    params(Id),
    responses((status = 200, description = "The execution", body = Execution)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
) -> ApiResult<Json<Execution>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let record = state.store.get_execution(&reach, id).await?.ok_or(ApiError::NotFound("execution"))?;
    let mut execution = Execution::from(record);
    execution.budget = state.store.read_budget(&reach, id).await?.map(BudgetView::from);
    if execution.finished_at.is_none() {
        let pending = pending_calls(&state, &principal, id).await?;
        execution.requires_action = (!pending.is_empty()).then_some(pending);
    }
    Ok(Json(execution))
}
