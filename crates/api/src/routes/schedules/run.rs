//! `POST /v1/schedules/{key}/run`.

use axum::{Json, extract::State, http::StatusCode};
use longhaul_store::{
    schedules::{KeyedRun, ManualRun, NotStarted},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::ScheduleError;
use super::find;
use crate::{auth::Principal, error::ApiResult, extract::Path, state::ApiState};

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
#[utoipa::path(
    post,
    operation_id = "runSchedule",
    path = "/v1/schedules/{key}/run",
    tag = "schedules",
    params(("key" = String, Path, description = "Its key")),
    responses((status = 202, description = "The run", body = RunView)),
)]
pub(crate) async fn run(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
) -> ApiResult<(StatusCode, Json<RunView>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let schedule = find(&state, &principal, &key).await?;
    let mut plan = state.store.plan_scheduled_run(&schedule, &state.options.contract.org_id).await?;
    if let Ok(execution) = &mut plan {
        let agent = (execution.agent_version_id, execution.agent_key.as_str());
        state.catalog.permit(agent, &principal, &state.options.contract.org_id).await?;
        execution.submitted_by = Some(principal.key_id());
    }
    let run = match &principal.keyed {
        Some(keyed) => {
            let answer = |run: &ManualRun| {
                keyed.answer(StatusCode::ACCEPTED, serde_json::to_vec(&view(run)).unwrap_or_default())
            };
            let keyed = KeyedRun { claim: &keyed.claim, answer: &answer };
            state.store.run_schedule_now(&schedule, &plan, Some(keyed)).await?
        }
        None => state.store.run_schedule_now(&schedule, &plan, None).await?,
    };
    match &run {
        ManualRun::Started(started) => state.publisher.wake(&started.queue, started.id),
        ManualRun::Queued { stopped: Some(stopped) } => state.publisher.look([*stopped]),
        ManualRun::Queued { stopped: None } => {}
        ManualRun::Refused(why) => return Err(ScheduleError::RunRefused(text_of(*why)).into()),
        ManualRun::Changed => return Err(ScheduleError::ScheduleChanged.into()),
    }
    Ok((StatusCode::ACCEPTED, Json(view(&run))))
}

fn view(run: &ManualRun) -> RunView {
    let (started, stopped) = match run {
        ManualRun::Started(started) => (Some(started.id), None),
        ManualRun::Queued { stopped } => (None, *stopped),
        ManualRun::Refused(_) | ManualRun::Changed => (None, None),
    };
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
