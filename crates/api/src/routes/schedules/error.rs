//! Errors of schedules. Each is a conflict.

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ScheduleError {
    #[error("there is a schedule `{0}` already")]
    Exists(String),
    #[error("another request changed the schedule meanwhile; try again")]
    Changed,
    #[error("there are {max} schedules, which is as many as there may be; delete one")]
    TooMany { max: u32 },
    #[error("no run was started: {0}")]
    RunRefused(&'static str),
    #[error("the run has reserved its budget from the monthly budget of its schedule; it cannot be raised")]
    ReservedBudget,
}

impl ScheduleError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Exists(_) => "schedule_exists",
            Self::Changed => "schedule_changed",
            Self::TooMany { .. } => "too_many_schedules",
            Self::RunRefused(_) => "run_refused",
            Self::ReservedBudget => "budget_of_schedule",
        }
    }
}
