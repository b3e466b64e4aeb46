//! Schedules and firings as the API shows them.

use chrono::{DateTime, NaiveDate, Utc};
use longhaul_domain::schedule::ScheduleSpec;
use longhaul_store::schedules::{Firing, MonthSpent, PauseReason, Schedule};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    error::ApiResult,
    openapi::{closed, spec},
    routes::executions::budget::AmountsView,
    state::ApiState,
};

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleView {
    #[schema(example = "nightly-report")]
    key: String,
    status: ScheduleStatus,
    /// `failures`: as many runs in a row failed as `pause_after` allows.
    #[schema(value_type = Option<closed::SchedulePauseReason>)]
    pause_reason: Option<&'static str>,
    paused_at: Option<DateTime<Utc>>,
    failures_in_a_row: i32,
    next_tick_at: Option<DateTime<Utc>>,
    /// Newest tick that was fired.
    last_tick_at: Option<DateTime<Utc>>,
    /// Execution under way.
    running: Option<String>,
    /// Ticks that wait for its end.
    queued: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    /// The month's budget; null without one, and in lists.
    month: Option<MonthView>,
    /// The schedule as it was sent.
    #[schema(value_type = spec::ScheduleSpec)]
    spec: ScheduleSpec,
}

/// Status of a schedule: `completed` if there is no tick any more.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ScheduleStatus {
    Active,
    Paused,
    Completed,
}

/// Amounts of the calendar month.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MonthView {
    /// Its first day.
    month: NaiveDate,
    /// Charged by runs that have ended.
    spent: AmountsView,
    /// Reserved by the run under way.
    reserved: AmountsView,
}

impl From<Schedule> for ScheduleView {
    fn from(of: Schedule) -> Self {
        let status = match (of.paused, of.next_fire_at) {
            (Some(_), _) => ScheduleStatus::Paused,
            (None, None) => ScheduleStatus::Completed,
            (None, Some(_)) => ScheduleStatus::Active,
        };
        Self {
            key: of.spec.key.clone(),
            status,
            pause_reason: of.paused.map(|(_, reason)| PauseReason::as_str(reason)),
            paused_at: of.paused.map(|(at, _)| at),
            failures_in_a_row: of.failures_in_a_row,
            next_tick_at: of.next_fire_at.filter(|_| of.paused.is_none()),
            last_tick_at: of.last_tick,
            running: of.running.map(|id| id.to_string()),
            queued: of.queued,
            created_at: of.created_at,
            updated_at: of.updated_at,
            month: None,
            spec: of.spec,
        }
    }
}

impl ScheduleView {
    /// The schedule, with the amounts of its month.
    pub(super) async fn of(state: &ApiState, schedule: Schedule) -> ApiResult<Self> {
        let month = match schedule.spec.monthly_budget {
            Some(_) => Some(state.store.schedule_month(&schedule).await?),
            None => None,
        };
        let month = month.map(|(month, MonthSpent { spent, reserved })| MonthView {
            month,
            spent: spent.into(),
            reserved: reserved.into(),
        });
        Ok(Self { month, ..schedule.into() })
    }
}

/// Schedules, in the order of keys.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SchedulePage {
    pub(super) schedules: Vec<ScheduleView>,
    /// Value of `?after=` for the next page; null on the last one.
    pub(super) next_after: Option<String>,
}

/// A tick that was fired, or a run that was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FiringView {
    /// The tick; for a manual run, the time of the request.
    tick: DateTime<Utc>,
    #[schema(value_type = closed::FiringKind)]
    kind: &'static str,
    /// Oldest tick that it stands for; earlier than `tick` if ticks were missed.
    first_tick: DateTime<Utc>,
    /// `queued`, `running`, `over`, or `skipped`: nothing was started. `ended`: sub-agents of the run have not.
    #[schema(value_type = closed::FiringState)]
    state: &'static str,
    #[schema(value_type = Option<closed::NotStarted>)]
    reason: Option<&'static str>,
    execution_id: Option<String>,
    /// Time at which it was fired.
    fired_at: DateTime<Utc>,
    /// Status of the execution.
    #[schema(value_type = Option<closed::ExecutionStatus>)]
    status: Option<String>,
    failure_code: Option<String>,
}

impl From<Firing> for FiringView {
    fn from(of: Firing) -> Self {
        Self {
            tick: of.tick,
            kind: of.kind.as_str(),
            first_tick: of.first_tick,
            state: of.state.as_str(),
            reason: of.reason.map(|reason| reason.as_str()),
            execution_id: of.execution.map(|id| id.to_string()),
            fired_at: of.fired_at,
            status: of.status,
            failure_code: of.failure_code,
        }
    }
}

/// Firings, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FiringPage {
    pub(super) firings: Vec<FiringView>,
    /// Value of `?before=` for the next page; null on the last one.
    pub(super) next_before: Option<DateTime<Utc>>,
}
