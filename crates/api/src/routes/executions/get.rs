//! `GET /v1/executions/{id}`.

use axum::{Json, extract::State};
use longhaul_store::api_keys::Scope;

use super::{budget::BudgetView, view::Execution};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params, take_reach},
    state::ApiState,
};

/// Returns one execution in full.
#[utoipa::path(get, operation_id = "getExecution", path = "/v1/executions/{id}", tag = "executions", params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The execution", body = Execution)))]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
) -> ApiResult<Json<Execution>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let record = state.store.get_execution(&reach, id).await?.ok_or(ApiError::NotFound("execution"))?;
    let mut execution = Execution::from(record);
    execution.budget = state.store.read_budget(&reach, id).await?.map(BudgetView::from);
    Ok(Json(execution))
}
