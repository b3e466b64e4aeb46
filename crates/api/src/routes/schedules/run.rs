//! `POST /v1/schedules/{key}/run`.

use axum::{Json, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_shared::domain::ExecutionId;
use longhaul_store::{
    executions::submit::Idempotency,
    schedules::{ManualRun, NotStarted},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::ScheduleError;
use super::find;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    routes::executions::request::idempotency_key,
    state::ApiState,
};

/// A run that was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunView {
    /// Its execution; null while it waits for the run under way.
    execution_id: Option<String>,
    /// True if it starts when the run under way has ended.
    is_queued: bool,
    /// Execution that it cancelled.
    stopped: Option<String>,
}

/// Runs a schedule now, also a paused one.
///
/// It follows the overlap policy: while a run is under way it is refused, waits, or cancels that run.
#[utoipa::path(post, operation_id = "runSchedule", path = "/v1/schedules/{key}/run", tag = "schedules",
    params(("key" = String, Path, description = "Its key"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key gives the same execution, if it started at once")),
    responses((status = 202, description = "The run", body = RunView),
        (status = 200, description = "Started before under the same key", body = RunView)))]
pub(crate) async fn run(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> ApiResult<(StatusCode, Json<RunView>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let idempotency = idempotency_key(&headers)?;
    let schedule = find(&state, &principal, &key).await?;
    let request_hash = Sha256::digest(format!("run schedule {}", schedule.id)).to_vec();
    if let Some(key) = &idempotency
        && let Some((id, stored)) = state.store.find_idempotency_key(principal.tenant(), key).await?
    {
        return if stored == request_hash {
            Ok((StatusCode::OK, Json(view(Some(id), None))))
        } else {
            Err(ApiError::IdempotencyKeyReused(id))
        };
    }
    let mut plan = state.store.plan_scheduled_run(&schedule, &state.options.contract.org_id).await?;
    if let Ok(execution) = &mut plan {
        let agent = (execution.agent_version_id, execution.agent_key.as_str());
        state.catalog.permit(agent, &principal, &state.options.contract.org_id).await?;
        execution.submitted_by = Some(principal.key_id());
        execution.idempotency = idempotency.map(|key| Idempotency { key, request_hash });
    }
    match state.store.run_schedule_now(&schedule, &plan).await? {
        ManualRun::Started(started) => {
            (state.hooks.wake)(&started.queue, started.id);
            Ok((StatusCode::ACCEPTED, Json(view(Some(started.id), None))))
        }
        ManualRun::Queued { stopped } => {
            if let Some(stopped) = stopped {
                (state.hooks.announce)(stopped);
            }
            Ok((StatusCode::ACCEPTED, Json(view(None, stopped))))
        }
        ManualRun::Refused(why) => Err(ApiError::Schedule(ScheduleError::RunRefused(text_of(why)))),
        ManualRun::Changed => Err(ApiError::Schedule(ScheduleError::Changed)),
    }
}

fn view(started: Option<ExecutionId>, stopped: Option<ExecutionId>) -> RunView {
    RunView {
        execution_id: started.map(|id| id.to_string()),
        is_queued: started.is_none(),
        stopped: stopped.map(|id| id.to_string()),
    }
}

fn text_of(why: NotStarted) -> &'static str {
    match why {
        NotStarted::Overlap => "a run is under way",
        NotStarted::QueueFull => "as many runs wait as may",
        NotStarted::Superseded => "a later run took its place",
        NotStarted::Missed => "it is too late",
        NotStarted::Paused => "the schedule is paused",
        NotStarted::MonthlyBudget => "the month's budget has no room for it",
        NotStarted::UnknownDefinition => "its definition does not exist",
        NotStarted::UnknownAgent => "its agent does not exist",
        NotStarted::VersionRemoved => "the version of its definition or agent was removed",
        NotStarted::AgentNotAllowed => "the key that wrote the schedule may not execute its agent, or was revoked",
        NotStarted::InvalidInput => "its input does not match the definition's schema",
        NotStarted::Unreadable => "its definition or agent cannot be read",
    }
}
