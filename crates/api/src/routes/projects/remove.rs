//! `DELETE /v1/projects/{id}`.

use axum::{extract::State, http::StatusCode};
use longhaul_store::{projects::Removed, tenants::api_keys::Scope};

use super::{ProjectError, ProjectPath};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    openapi::params::Id,
    routes::executions::ExecutionError,
    state::ApiState,
};

/// Deletes a project that has ended, and erases the texts of its executions.
#[utoipa::path(
    delete,
    operation_id = "deleteProject",
    path = "/v1/projects/{id}",
    tag = "projects",
    params(Id),
    responses((status = 204, description = "It is gone")),
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    principal: Principal,
    ProjectPath(id): ProjectPath,
) -> ApiResult<StatusCode> {
    principal.need(Scope::ExecutionsWrite)?;
    match state.store.delete_project(principal.tenant(), id).await? {
        Removed::Done(erased) => {
            state.forget_replies(erased).await;
            Ok(StatusCode::NO_CONTENT)
        }
        Removed::Refused(status) => Err(ProjectError::ProjectState(status).into()),
        Removed::NotEnded(execution) => Err(ExecutionError::ExecutionNotEnded(execution).into()),
        Removed::NotFound => Err(ApiError::NotFound("project")),
    }
}
