//! `GET /v1/workers` and `GET /v1/workers/{id}`.

use axum::{Json, extract::State};
use longhaul_store::{fleet::roster::WorkerState, tenants::api_keys::Scope};
use uuid::Uuid;

use super::{
    find, id,
    view::{WorkerDetail, WorkerPage, WorkerView},
};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path, take_reach},
    openapi::closed,
    state::ApiState,
};

/// Lists the workers of the fleet; dead ones for an hour.
///
/// Needs the scope `admin`.
#[utoipa::path(get, operation_id = "listWorkers", path = "/v1/workers", tag = "operation",
    params(("state" = Option<closed::WorkerState>, Query, description = "In this state"),
        ("after" = Option<String>, Query, description = "`next_after` of the page before"),
        ("limit" = Option<i64>, Query, description = "1 to 200; 100 when absent")),
    responses((status = 200, description = "Workers in the order of their ids", body = WorkerPage)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<WorkerPage>> {
    principal.need(Scope::Admin)?;
    let only = params.chosen("state", WorkerState::ALL, WorkerState::as_str);
    let (after, limit): (Option<Uuid>, i64) = (params.take("after"), params.limit(100, 200));
    params.finish()?;
    let found = state.store.list_workers(only, after, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_after = found.last().filter(|_| is_full).map(|last| last.id.to_string());
    Ok(Json(WorkerPage { workers: found.into_iter().map(WorkerView::from).collect(), next_after }))
}

/// Reads a worker and the executions that it holds.
///
/// Needs the scope `admin`. Lists the executions of the caller's tenant, or of those that the query names; `held`
/// counts those of all tenants. `lost` are the executions that it held when it was declared dead, at most 200.
#[utoipa::path(
    get,
    operation_id = "getWorker",
    path = "/v1/workers/{id}",
    tag = "operation",
    params(
        ("id" = String, Path, description = "Its id"),
        ("org_id" = Option<String>, Query, description = "Executions of this organisation"),
        ("group_id" = Option<String>, Query, description = "Executions of this group of `org_id`"),
        ("all_tenants" = Option<bool>, Query, description = "Executions of everybody"),
        ("after" = Option<String>, Query, description = "`next_after` of the page before"),
        ("limit" = Option<i64>, Query, description = "1 to 200; 100 when absent"),
    ),
    responses((status = 200, description = "The worker", body = WorkerDetail)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    Path(text): Path<String>,
    mut params: Params,
) -> ApiResult<Json<WorkerDetail>> {
    principal.need(Scope::Admin)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let (after, limit): (Option<Uuid>, i64) = (params.take("after"), params.limit(100, 200));
    params.finish()?;
    let worker = find(&state, id(&text)?).await?;
    let held = state.store.held_by(&reach, worker.id, after, limit).await?;
    let lost = match worker.dead_at {
        Some(_) => state.store.lost_by(&reach, worker.id).await?,
        None => Vec::new(),
    };
    let is_full = i64::try_from(held.len()).is_ok_and(|held| held == limit);
    let next_after = held.last().filter(|_| is_full).map(|last| last.id.to_string());
    Ok(Json(WorkerDetail::new(worker, held, lost, next_after)))
}
