//! Errors of schedules. Each is a conflict.

use axum::http::StatusCode;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ScheduleError {
    #[error("there is a schedule `{0}` already")]
    ScheduleExists(String),
    #[error("another request changed the schedule meanwhile; try again")]
    ScheduleChanged,
    #[error("there are {max} schedules, which is as many as there may be; delete one")]
    TooManySchedules { max: u32 },
    #[error("no run was started: {0}")]
    RunRefused(&'static str),
    #[error("the run has reserved its budget from the monthly budget of its schedule; it cannot be raised")]
    BudgetOfSchedule,
}

impl AreaError for ScheduleError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }
}
