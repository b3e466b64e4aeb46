//! `GET /v1/projects` and `GET /v1/projects/{id}`.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, ProjectId, ProjectStatus};
use longhaul_store::{projects::Project, tenants::api_keys::Scope};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{ProjectPath, find};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::Params,
    openapi::params::Id,
    openapi::{closed, spec},
    routes::executions::budget::BudgetView,
    state::ApiState,
};

/// A project.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProjectView {
    #[schema(example = "proj_019a2c3e5b7f7d10a1b2c3d4e5f60718")]
    id: String,
    name: String,
    goal: String,
    /// Agent of tasks that name no other.
    agent: String,
    #[schema(value_type = spec::ExecutionStrategy)]
    execution_strategy: &'static str,
    max_parallel_tasks: i32,
    needs_approval: bool,
    /// `pending` (no plan), `planning`, `awaiting_approval`, `approved` (waits for its turn to run), `in_progress`,
    /// `paused`, `completed`, `failed` or `cancelled`.
    #[schema(value_type = closed::ProjectStatus)]
    status: &'static str,
    /// Reason of the pause, while `paused`.
    #[schema(value_type = Option<closed::ProjectPauseReason>)]
    pause_reason: Option<String>,
    /// Phase that runs.
    phase: Option<String>,
    /// Number of the plan; 0 without one.
    plan_version: i32,
    /// Execution that made the plan.
    planner_execution_id: Option<String>,
    failure_code: Option<String>,
    failure_summary: Option<String>,
    /// Numbers of tasks by status.
    tasks: BTreeMap<&'static str, i32>,
    #[schema(value_type = Object)]
    metadata: Value,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    deadline_at: Option<DateTime<Utc>>,
    /// Budget of all its executions; null without one, and in lists.
    budget: Option<BudgetView>,
}

impl ProjectView {
    /// The project, with its budget.
    pub(super) async fn of(state: &ApiState, project: Project) -> ApiResult<Self> {
        let budget = state.store.read_budget(&project.tenant_id.into(), ExecutionId(project.id.0)).await?;
        Ok(Self { budget: budget.map(BudgetView::from), ..project.into() })
    }
}

impl From<Project> for ProjectView {
    fn from(of: Project) -> Self {
        let tasks = of.tasks().map(|(status, number)| (status.as_str(), number)).collect();
        Self {
            id: of.id.to_string(),
            name: of.name,
            goal: of.goal,
            agent: of.agent_key,
            execution_strategy: of.execution_strategy.as_str(),
            max_parallel_tasks: of.max_parallel_tasks,
            needs_approval: of.needs_approval,
            status: of.status.as_str(),
            pause_reason: of.pause_reason,
            phase: of.phase,
            plan_version: of.plan_version,
            planner_execution_id: of.planner.map(|id| id.to_string()),
            failure_code: of.failure_code,
            failure_summary: of.failure_summary,
            tasks,
            metadata: of.metadata,
            created_at: of.created_at,
            started_at: of.started_at,
            finished_at: of.finished_at,
            deadline_at: of.deadline_at,
            budget: None,
        }
    }
}

/// Projects, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProjectPage {
    projects: Vec<ProjectView>,
    /// Value of `?before=` for the next page; null on the last one.
    next_before: Option<String>,
}

/// Lists the caller's projects, newest first.
#[utoipa::path(get, operation_id = "listProjects", path = "/v1/projects", tag = "projects",
    params(("status" = Option<closed::ProjectStatus>, Query, description = "Projects of this status"),
        ("before" = Option<String>, Query, description = "Projects older than this one"),
        ("limit" = Option<i64>, Query, description = "1 to 200; 20 when absent")),
    responses((status = 200, description = "Projects", body = ProjectPage)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<ProjectPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let status = params.chosen("status", ProjectStatus::ALL, ProjectStatus::as_str);
    let (before, limit) = (params.take::<ProjectId>("before"), params.limit(20, 200));
    params.finish()?;
    let found = state.store.list_projects(&principal.tenant().into(), status, before, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_before = found.last().filter(|_| is_full).map(|last| last.id.to_string());
    Ok(Json(ProjectPage { projects: found.into_iter().map(ProjectView::from).collect(), next_before }))
}

/// Reads a project.
#[utoipa::path(
    get,
    operation_id = "getProject",
    path = "/v1/projects/{id}",
    tag = "projects",
    params(Id),
    responses((status = 200, description = "The project", body = ProjectView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    ProjectPath(id): ProjectPath,
) -> ApiResult<Json<ProjectView>> {
    principal.need(Scope::ExecutionsRead)?;
    Ok(Json(ProjectView::of(&state, find(&state, &principal, id).await?).await?))
}
