//! `GET /v1/schedules/{key}/firings`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::{
    find,
    view::{FiringPage, FiringView},
};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path},
    openapi::params::Limit,
    state::ApiState,
};

/// Lists the firings of a schedule, newest first. They are kept for 90 days.
#[utoipa::path(
    get,
    operation_id = "listFirings",
    path = "/v1/schedules/{key}/firings",
    tag = "schedules",
    params(
        ("key" = String, Path, description = "Its key"),
        ("before" = Option<String>, Query, description = "Firings with a tick before this time"),
        Limit,
    ),
    responses((status = 200, description = "Firings", body = FiringPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    Path(key): Path<String>,
    mut params: Params,
) -> ApiResult<Json<FiringPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let (before, limit) = (params.instant("before"), params.limit(50, 200));
    params.finish()?;
    let schedule = find(&state, &principal, &key).await?;
    let found = state.store.schedule_firings(schedule.id, before, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_before = found.last().filter(|_| is_full).map(|last| last.tick);
    Ok(Json(FiringPage { firings: found.into_iter().map(FiringView::from).collect(), next_before }))
}
