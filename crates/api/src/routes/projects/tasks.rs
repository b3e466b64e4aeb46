//! `GET /v1/projects/{id}/tasks`, one task, and its retry.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_store::{
    projects::{ProjectTask, Retried},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::ProjectError;
use super::{ProjectPath, TaskPath, drive, find};
use crate::{
    auth::{Principal, Reader},
    error::{ApiError, ApiResult},
    extract::Params,
    openapi::{closed, params::Id},
    state::ApiState,
};

/// A task of a project.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskView {
    key: String,
    title: String,
    prompt: String,
    /// Agent, if it is not the project's.
    agent: Option<String>,
    depends_on: Vec<String>,
    phase: Option<String>,
    /// Place in the plan, from 0.
    position: i32,
    /// `pending`, `running`, `completed`, `failed`, `skipped` (it depends on one that failed) or `cancelled`.
    #[schema(value_type = closed::TaskStatus)]
    status: &'static str,
    /// Its last execution.
    execution_id: Option<String>,
    /// Executions so far.
    attempts: i32,
    retries: u8,
    timeout_seconds: Option<u32>,
    /// Tasks that it depends on and that have not completed.
    remaining_deps: i32,
    failure_code: Option<String>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
}

impl From<ProjectTask> for TaskView {
    fn from(of: ProjectTask) -> Self {
        Self {
            key: of.planned.key,
            title: of.planned.title,
            prompt: of.planned.prompt,
            agent: of.planned.agent,
            depends_on: of.planned.depends_on,
            phase: of.planned.phase,
            position: of.position,
            status: of.status.as_str(),
            execution_id: of.execution.map(|id| id.to_string()),
            attempts: of.attempts,
            retries: of.planned.retries,
            timeout_seconds: of.planned.timeout_seconds,
            remaining_deps: of.remaining_deps,
            failure_code: of.failure_code,
            started_at: of.started_at,
            finished_at: of.finished_at,
        }
    }
}

/// Tasks in the order of the plan.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskPage {
    tasks: Vec<TaskView>,
    /// Value of `?after=` for the next page; null on the last one.
    next_after: Option<i32>,
}

/// Lists the tasks of a project.
#[utoipa::path(
    get,
    operation_id = "listTasks",
    path = "/v1/projects/{id}/tasks",
    tag = "projects",
    params(
        Id,
        ("after" = Option<i32>, Query, description = "Tasks after this position"),
        ("limit" = Option<i64>, Query, description = "1 to 1000; 200 when absent"),
    ),
    responses((status = 200, description = "Tasks", body = TaskPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    ProjectPath(id): ProjectPath,
    mut params: Params,
) -> ApiResult<Json<TaskPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let (after, limit) = (params.take("after").unwrap_or(-1), params.limit(200, 1_000));
    params.finish()?;
    find(&state, &principal, id).await?;
    let found = state.store.list_tasks(id, after, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_after = found.last().filter(|_| is_full).map(|last| last.position);
    Ok(Json(TaskPage { tasks: found.into_iter().map(TaskView::from).collect(), next_after }))
}

/// Reads a task.
#[utoipa::path(
    get,
    operation_id = "getTask",
    path = "/v1/projects/{id}/tasks/{key}",
    tag = "projects",
    params(("id" = String, Path, description = "Id of the project"), ("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The task", body = TaskView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    TaskPath(id, key): TaskPath,
) -> ApiResult<Json<TaskView>> {
    principal.need(Scope::ExecutionsRead)?;
    find(&state, &principal, id).await?;
    let task = state.store.get_task(id, &key).await?.ok_or(ApiError::NotFound("task"))?;
    Ok(Json(task.into()))
}

/// Starts a failed or cancelled task again.
///
/// Tasks that were skipped because of it are pending again, and a failed project goes on.
#[utoipa::path(
    post,
    operation_id = "retryTask",
    path = "/v1/projects/{id}/tasks/{key}/retry",
    tag = "projects",
    params(("id" = String, Path, description = "Id of the project"), ("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The task", body = TaskView)),
)]
pub(crate) async fn retry(
    State(state): State<ApiState>,
    principal: Principal,
    TaskPath(id, key): TaskPath,
) -> ApiResult<Json<TaskView>> {
    principal.need(Scope::ExecutionsWrite)?;
    find(&state, &principal, id).await?;
    match state.store.retry_task(principal.tenant(), id, (&key, principal.key_id())).await? {
        Retried::Done => {}
        Retried::TaskNotFailed(status) => return Err(ProjectError::TaskNotFailed(status).into()),
        Retried::Refused(status) => return Err(ProjectError::ProjectState(status).into()),
        Retried::NotFound => return Err(ApiError::NotFound("task")),
    }
    drive(&state, principal.tenant(), id).await;
    let task = state.store.get_task(id, &key).await?.ok_or(ApiError::NotFound("task"))?;
    Ok(Json(task.into()))
}
