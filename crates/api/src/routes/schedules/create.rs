//! `POST /v1/schedules`.

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_domain::ScheduleId;
use longhaul_store::{
    executions::submit::Idempotency,
    schedules::{Created, NewSchedule},
    tenants::api_keys::Scope,
};

use super::{ScheduleError, find, request::Request, view::ScheduleView};
use crate::{
    auth::Principal, error::ApiResult, idempotency_error::IdempotencyError,
    routes::executions::request::idempotency_key, state::ApiState,
};

/// Creates a schedule.
#[utoipa::path(
    post,
    operation_id = "createSchedule",
    path = "/v1/schedules",
    tag = "schedules",
    request_body = ref("#/components/schemas/ScheduleSpec"),
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key gives the same schedule")),
    responses(
        (status = 201, description = "The schedule", body = ScheduleView),
        (status = 200, description = "Created before under the same key", body = ScheduleView),
    ),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<ScheduleView>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let key = idempotency_key(&headers)?;
    let request = Request::read(&headers, body, None).await?;
    // An accepted request stays accepted under its key, also after its only tick.
    if let Some(key) = &key
        && let Some((created, hash)) = state.store.schedule_created_under(principal.tenant(), key).await?
    {
        if hash != request.hash {
            return Err(IdempotencyError::IdempotencyKeyReused(None).into());
        }
        let schedule = find(&state, &principal, &created).await?;
        return Ok((StatusCode::OK, Json(ScheduleView::of(&state, schedule).await?)));
    }
    request.check(&state, &principal).await?;
    let now = state.store.now().await?;
    let new = NewSchedule {
        id: ScheduleId(uuid::Uuid::new_v4()),
        tenant_id: principal.tenant(),
        spec: &request.spec,
        submitted_by: Some(principal.key_id()),
        idempotency: key.map(|key| Idempotency { key, request_hash: request.hash.clone() }),
        anchored_at: now,
        next_fire_at: Some(request.first_tick(now)?),
    };
    let max = state.options.max_schedules;
    let status = match state.store.create_schedule(&new, max).await? {
        Created::Created => StatusCode::CREATED,
        Created::Existing => StatusCode::OK,
        Created::KeyReused => return Err(IdempotencyError::IdempotencyKeyReused(None).into()),
        Created::Exists => return Err(ScheduleError::ScheduleExists(request.spec.key).into()),
        Created::TooMany => return Err(ScheduleError::TooManySchedules { max }.into()),
    };
    principal.created(&request.spec.key);
    let schedule = find(&state, &principal, &request.spec.key).await?;
    Ok((status, Json(ScheduleView::of(&state, schedule).await?)))
}
