//! Errors of projects.

use axum::http::StatusCode;
use longhaul_shared::domain::{ProjectStatus, TaskStatus};

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ProjectError {
    #[error("the project is `{0}`, which does not allow this")]
    State(ProjectStatus),
    #[error("{max} projects have not ended, as many as may")]
    TooMany { max: i64 },
    #[error("the task is `{0}`; only one that failed or was cancelled after its start can be retried")]
    TaskNotFailed(TaskStatus),
    #[error("the task `{key}` is `{status}` and cannot be changed")]
    TaskStarted { key: String, status: TaskStatus },
    #[error("the plan has the number {0} by now; read it again")]
    PlanChanged(i32),
}

impl ProjectError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::State(_) | Self::TaskNotFailed(_) | Self::TaskStarted { .. } | Self::PlanChanged(_) => {
                StatusCode::CONFLICT
            }
        }
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::State(_) => "project_state",
            Self::TooMany { .. } => "too_many_projects",
            Self::TaskNotFailed(_) => "task_not_failed",
            Self::TaskStarted { .. } => "task_started",
            Self::PlanChanged(_) => "plan_changed",
        }
    }
}
