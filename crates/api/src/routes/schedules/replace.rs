//! `PUT /v1/schedules/{key}`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_store::{schedules::Replaced, tenants::api_keys::Scope};

use super::ScheduleError;
use super::{find, request::Request, view::ScheduleView};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Replaces what a schedule says.
///
/// Its next tick stays if the timing does. A run under way goes on.
#[utoipa::path(
    put,
    operation_id = "replaceSchedule",
    path = "/v1/schedules/{key}",
    tag = "schedules",
    request_body = ref("#/components/schemas/ScheduleSpec"),
    params(("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
pub(crate) async fn replace(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ScheduleView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let old = find(&state, &principal, &key).await?;
    let request = Request::read(&headers, body, Some(&key)).await?;
    request.check(&state, &principal).await?;
    let now = state.store.now().await?;
    if !old.spec.has_timing_of(&request.spec) {
        request.first_tick(now)?;
    }
    let by = (principal.tenant(), Some(principal.key_id()));
    match state.store.replace_schedule(by, &request.spec, now).await? {
        Replaced::Replaced => {}
        Replaced::Changed => return Err(ScheduleError::ScheduleChanged.into()),
        Replaced::NotFound => return Err(ApiError::NotFound("schedule")),
    }
    let schedule = find(&state, &principal, &key).await?;
    Ok(Json(ScheduleView::of(&state, schedule).await?))
}
