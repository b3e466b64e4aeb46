//! Decisions on a project: `POST …/approve`, `…/pause`, `…/resume`, `…/continue` and `…/cancel`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::ProjectId;
use longhaul_store::{
    projects::{Changed, RunningTasks},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::ProjectError;
use super::{ProjectPath, drive, find, read::ProjectView};
use crate::{
    auth::Principal,
    body::read_optional,
    error::{ApiError, ApiResult},
    openapi::params::Id,
    state::ApiState,
};

/// The plan that is approved.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApproveBody {
    /// Number of the plan that the person has seen; another plan in its place stays unapproved. Any when absent.
    version: Option<i32>,
}

/// Treatment of a cancelled project's tasks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelBody {
    /// `finish` (when absent): tasks that run go on to their end. `cancel`: they are cancelled.
    #[serde(default)]
    running_tasks: Running,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RunningTasks")]
pub(crate) enum Running {
    #[default]
    Finish,
    Cancel,
}

/// Approves the plan of a project that waits for it.
#[utoipa::path(
    post,
    operation_id = "approveProject",
    path = "/v1/projects/{id}/approve",
    tag = "projects",
    request_body = ref("#/components/schemas/ApproveBody"),
    params(Id),
    responses((status = 200, description = "The project", body = ProjectView)),
)]
pub(crate) async fn approve(
    State(state): State<ApiState>,
    principal: Principal,
    ProjectPath(id): ProjectPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ProjectView>> {
    principal.need(Scope::ApprovalsDecide)?;
    let ApproveBody { version } = read_optional(&headers, body).await?;
    let changed = state.store.approve_project(principal.tenant(), id, version).await?;
    done(&state, &principal, id, changed).await
}

/// Pauses a project: tasks that run finish, and no other starts. Another project may run in its place.
#[utoipa::path(
    post,
    operation_id = "pauseProject",
    path = "/v1/projects/{id}/pause",
    tag = "projects",
    params(Id),
    responses((status = 200, description = "The project", body = ProjectView)),
)]
pub(crate) async fn pause(
    State(state): State<ApiState>,
    principal: Principal,
    ProjectPath(id): ProjectPath,
) -> ApiResult<Json<ProjectView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let changed = state.store.pause_project(principal.tenant(), id).await?;
    done(&state, &principal, id, changed).await
}

/// Resumes a project that was paused by request, as soon as there is a place for it.
#[utoipa::path(
    post,
    operation_id = "resumeProject",
    path = "/v1/projects/{id}/resume",
    tag = "projects",
    params(Id),
    responses((status = 200, description = "The project", body = ProjectView)),
)]
pub(crate) async fn resume(
    State(state): State<ApiState>,
    principal: Principal,
    ProjectPath(id): ProjectPath,
) -> ApiResult<Json<ProjectView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let changed = state.store.resume_project(principal.tenant(), id).await?;
    done(&state, &principal, id, changed).await
}

/// Lets a project that waits at the gate of a phase go on to the next phase.
#[utoipa::path(
    post,
    operation_id = "continueProject",
    path = "/v1/projects/{id}/continue",
    tag = "projects",
    params(Id),
    responses((status = 200, description = "The project", body = ProjectView)),
)]
pub(crate) async fn go_on(
    State(state): State<ApiState>,
    principal: Principal,
    ProjectPath(id): ProjectPath,
) -> ApiResult<Json<ProjectView>> {
    principal.need(Scope::ApprovalsDecide)?;
    let changed = state.store.continue_project(principal.tenant(), id).await?;
    done(&state, &principal, id, changed).await
}

/// Cancels a project: no more tasks start.
#[utoipa::path(
    post,
    operation_id = "cancelProject",
    path = "/v1/projects/{id}/cancel",
    tag = "projects",
    request_body = ref("#/components/schemas/CancelBody"),
    params(Id),
    responses((status = 200, description = "The project", body = ProjectView)),
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    principal: Principal,
    ProjectPath(id): ProjectPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ProjectView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let CancelBody { running_tasks } = read_optional(&headers, body).await?;
    let running = match running_tasks {
        Running::Finish => RunningTasks::Finish,
        Running::Cancel => RunningTasks::Cancel,
    };
    let changed = state.store.cancel_project(principal.tenant(), id, running).await?;
    done(&state, &principal, id, changed).await
}

async fn done(
    state: &ApiState,
    principal: &Principal,
    id: ProjectId,
    changed: Changed,
) -> ApiResult<Json<ProjectView>> {
    match changed {
        Changed::Done(stopped) => state.publisher.look(stopped),
        Changed::Stale(version) => return Err(ProjectError::PlanChanged(version).into()),
        Changed::Refused(status) => return Err(ProjectError::ProjectState(status).into()),
        Changed::NotFound => return Err(ApiError::NotFound("project")),
    }
    drive(state, principal.tenant(), id).await;
    Ok(Json(ProjectView::of(state, find(state, principal, id).await?).await?))
}
