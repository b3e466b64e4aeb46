//! `GET /v1/runs/{key}/calls`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::{
    find,
    view::{RunCallPage, RunCallView},
};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path, read_cursor, write_cursor},
    openapi::params::{Cursor, Limit},
    state::ApiState,
};

/// Lists the recorded model calls of a durable run, in the order in which they were first made.
#[utoipa::path(
    get,
    operation_id = "listRunCalls",
    path = "/v1/runs/{key}/calls",
    tag = "runs",
    params(("key" = String, Path, description = "Its key"), Cursor, Limit),
    responses((status = 200, description = "Calls", body = RunCallPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    Path(key): Path<String>,
    mut params: Params,
) -> ApiResult<Json<RunCallPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let (after, limit) = (params.named("cursor", read_cursor), params.limit(50, 200));
    params.finish()?;
    let run = find(&state, &principal, &key).await?;
    let found = state.store.run_calls(run.id, after, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_cursor = found.last().filter(|_| is_full).map(|last| write_cursor(last.id));
    Ok(Json(RunCallPage { calls: found.into_iter().map(RunCallView::from).collect(), next_cursor }))
}
