//! `POST /v1/schedules/{key}/pause` and `/resume`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::{ScheduleError, find, view::ScheduleView};
use crate::{auth::Principal, error::ApiResult, extract::Path, state::ApiState};

/// Pauses a schedule.
///
/// No tick fires, and those that wait for the run under way start none. The run goes on.
#[utoipa::path(
    post,
    operation_id = "pauseSchedule",
    path = "/v1/schedules/{key}/pause",
    tag = "schedules",
    params(("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
pub(crate) async fn pause(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
) -> ApiResult<Json<ScheduleView>> {
    principal.need(Scope::ExecutionsWrite)?;
    find(&state, &principal, &key).await?;
    state.store.pause_schedule(principal.tenant(), &key).await?;
    let schedule = find(&state, &principal, &key).await?;
    Ok(Json(ScheduleView::of(&state, schedule).await?))
}

/// Resumes a paused schedule with the first tick after now. Its failures are forgotten.
#[utoipa::path(
    post,
    operation_id = "resumeSchedule",
    path = "/v1/schedules/{key}/resume",
    tag = "schedules",
    params(("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
pub(crate) async fn resume(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
) -> ApiResult<Json<ScheduleView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let schedule = find(&state, &principal, &key).await?;
    if !state.store.resume_schedule(&schedule, state.store.now().await?).await? && schedule.paused.is_some() {
        return Err(ScheduleError::ScheduleChanged.into());
    }
    let schedule = find(&state, &principal, &key).await?;
    Ok(Json(ScheduleView::of(&state, schedule).await?))
}
