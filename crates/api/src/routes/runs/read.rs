//! `GET /v1/runs` and `GET /v1/runs/{key}`.

use axum::{Json, extract::State};
use longhaul_domain::{RunId, RunStatus};
use longhaul_store::{runs::RunFilter, tenants::api_keys::Scope};

use super::{
    find,
    view::{DurableRun, RunPage},
};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path, read_cursor, write_cursor},
    openapi::{
        closed,
        params::{Cursor, Limit},
    },
    state::ApiState,
};

/// Lists durable runs, newest first.
#[utoipa::path(
    get,
    operation_id = "listRuns",
    path = "/v1/runs",
    tag = "runs",
    params(
        ("status" = Option<closed::RunStatus>, Query, description = "Runs of this status"),
        Cursor,
        Limit,
    ),
    responses((status = 200, description = "Runs", body = RunPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<RunPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let status = params.chosen("status", RunStatus::ALL, RunStatus::as_str);
    let before = params.named("cursor", read_cursor).map(RunId);
    let limit = params.limit(50, 200);
    params.finish()?;
    let filter = RunFilter { status, before, limit };
    let found = state.store.list_runs(&principal.tenant().into(), &filter).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_cursor = found.last().filter(|_| is_full).map(|last| write_cursor(last.id.0));
    Ok(Json(RunPage { runs: found.into_iter().map(DurableRun::from).collect(), next_cursor }))
}

/// Reads a durable run.
#[utoipa::path(
    get,
    operation_id = "getRun",
    path = "/v1/runs/{key}",
    tag = "runs",
    params(("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The run", body = DurableRun)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    Path(key): Path<String>,
) -> ApiResult<Json<DurableRun>> {
    principal.need(Scope::ExecutionsRead)?;
    Ok(Json(DurableRun::of(&state, find(&state, &principal, &key).await?).await?))
}
