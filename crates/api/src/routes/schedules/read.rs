//! `GET /v1/schedules` and `GET /v1/schedules/{key}`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::{
    find,
    view::{SchedulePage, ScheduleView},
};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path},
    openapi::params::Limit,
    routes::definitions::list::page,
    state::ApiState,
};

/// Lists the caller's schedules.
#[utoipa::path(
    get,
    operation_id = "listSchedules",
    path = "/v1/schedules",
    tag = "schedules",
    params(("after" = Option<String>, Query, description = "Keys after this one"), Limit),
    responses((status = 200, description = "In the order of keys", body = SchedulePage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    params: Params,
) -> ApiResult<Json<SchedulePage>> {
    principal.need(Scope::ExecutionsRead)?;
    let (after, limit) = page(params)?;
    let found = state.store.list_schedules(&principal.tenant().into(), (None, &after), limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_after = found.last().filter(|_| is_full).map(|last| last.spec.key.clone());
    Ok(Json(SchedulePage { schedules: found.into_iter().map(ScheduleView::from).collect(), next_after }))
}

/// Reads a schedule.
#[utoipa::path(
    get,
    operation_id = "getSchedule",
    path = "/v1/schedules/{key}",
    tag = "schedules",
    params(("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    Path(key): Path<String>,
) -> ApiResult<Json<ScheduleView>> {
    principal.need(Scope::ExecutionsRead)?;
    let schedule = find(&state, &principal, &key).await?;
    Ok(Json(ScheduleView::of(&state, schedule).await?))
}
