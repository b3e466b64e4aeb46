//! Errors of projects.

use axum::http::StatusCode;
use longhaul_domain::{ProjectStatus, TaskStatus};
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ProjectError {
    #[error("the project is `{0}`, which does not allow this")]
    ProjectState(ProjectStatus),
    #[error("{max} projects have not ended, as many as may")]
    TooManyProjects { max: i64 },
    #[error("the task is `{0}`; only one that failed or was cancelled after its start can be retried")]
    TaskNotFailed(TaskStatus),
    #[error("the task `{key}` is `{status}` and cannot be changed")]
    TaskStarted { key: String, status: TaskStatus },
    #[error("the plan has the number {0} by now; read it again")]
    PlanChanged(i32),
}

impl AreaError for ProjectError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::TooManyProjects { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::ProjectState(_) | Self::TaskNotFailed(_) | Self::TaskStarted { .. } | Self::PlanChanged(_) => {
                StatusCode::CONFLICT
            }
        }
    }
}
