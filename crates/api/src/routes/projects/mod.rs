//! `/v1/projects`: a goal, the plan of its tasks, and their executions.

mod agents;
pub(crate) mod budget;
pub(crate) mod control;
pub(crate) mod create;
mod error;
pub(crate) mod events;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod tasks;

pub(crate) use error::ProjectError;

use axum::{extract::FromRequestParts, http::request::Parts};
use longhaul_domain::{ProjectId, TenantId, project::PlanProblem};
use longhaul_store::{StoreError, fleet::maintenance::Runnable, projects::Project};

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult, Violation},
    extract::Path,
    state::ApiState,
};

/// Body limit of a plan, in bytes.
const PLAN_LIMIT: usize = 4 * 1024 * 1024;

/// The project id of a path.
pub(crate) struct ProjectPath(pub(crate) ProjectId);

impl FromRequestParts<ApiState> for ProjectPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or(ApiError::NotFound("project"))
    }
}

/// The project id and the task key of a path.
pub(crate) struct TaskPath(pub(crate) ProjectId, pub(crate) String);

impl FromRequestParts<ApiState> for TaskPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let found = path.ok().and_then(|Path((id, key))| Some(Self(id.parse().ok()?, key)));
        found.ok_or(ApiError::NotFound("task"))
    }
}

/// The caller's project of that id.
async fn find(state: &ApiState, principal: &Principal, id: ProjectId) -> ApiResult<Project> {
    let found = state.store.get_project(&principal.tenant().into(), id).await?;
    found.ok_or(ApiError::NotFound("project"))
}

/// Starts what a change made ready, in the project and in its tenant's line. The change is committed: what fails here
/// is done by the sweep of a worker.
async fn drive(state: &ApiState, tenant: TenantId, id: ProjectId) {
    let max = state.options.max_running_projects;
    for started in [state.store.drive_project(id, max).await, state.store.drive_line(tenant, max).await] {
        wake(state, started);
    }
}

fn wake(state: &ApiState, started: Result<Vec<Runnable>, StoreError>) {
    match started {
        Ok(started) => started.iter().for_each(|one| state.publisher.wake(&one.queue, one.id)),
        Err(error) => tracing::warn!(error = %error, "a project is left to the sweep"),
    }
}

fn violations(problems: Vec<PlanProblem>) -> ApiError {
    let violation = |problem: PlanProblem| Violation::new(format!("/plan{}", problem.path), problem.message);
    ApiError::InvalidRequest(problems.into_iter().map(violation).collect())
}
