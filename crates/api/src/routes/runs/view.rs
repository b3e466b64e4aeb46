//! Durable runs and their calls as the API shows them.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, ExecutionStatus};
use longhaul_sdk::Usd;
use longhaul_store::runs::{Run, RunCall, RunSummary};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{error::ApiResult, openapi::closed, routes::executions::budget::BudgetView, state::ApiState};

/// A durable run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DurableRun {
    #[schema(example = "report-7")]
    key: String,
    #[schema(value_type = closed::RunStatus)]
    status: &'static str,
    /// Reason for its end, if one was given.
    note: Option<String>,
    /// Model calls recorded so far.
    calls: i32,
    /// Starts of the program that have asked for a call.
    attempts: i32,
    created_at: DateTime<Utc>,
    deadline_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    /// Sums over its calls; null in lists.
    usage: Option<RunUsage>,
    /// Budget of all its calls; null without one, and in lists.
    budget: Option<BudgetView>,
}

/// Sums over the calls of a run. Costs are known as far as models have prices.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunUsage {
    /// Calls under way.
    open_calls: i64,
    tokens: i64,
    #[schema(value_type = f64)]
    cost_usd: Usd,
    /// Answers given from the record, in the place of a call.
    saved_calls: i64,
    /// Cost of those calls, had they been made.
    #[schema(value_type = f64)]
    saved_usd: Usd,
}

impl From<RunSummary> for RunUsage {
    fn from(of: RunSummary) -> Self {
        Self {
            open_calls: of.open,
            tokens: of.tokens,
            cost_usd: of.cost,
            saved_calls: of.saved,
            saved_usd: of.saved_cost,
        }
    }
}

impl From<Run> for DurableRun {
    fn from(of: Run) -> Self {
        Self {
            key: of.key,
            status: of.status.as_str(),
            note: of.note.filter(|note| !note.is_empty()),
            calls: of.calls,
            attempts: of.attempts,
            created_at: of.created_at,
            deadline_at: of.deadline_at,
            ended_at: of.ended_at,
            usage: None,
            budget: None,
        }
    }
}

impl DurableRun {
    /// The run, with its sums and its budget.
    pub(super) async fn of(state: &ApiState, run: Run) -> ApiResult<Self> {
        let usage = state.store.run_summary(run.id).await?;
        // A run owns its budget as the root of a tree does.
        let budget = state.store.read_budget(&run.tenant_id.into(), ExecutionId(run.id.0)).await?;
        Ok(Self { usage: Some(usage.into()), budget: budget.map(BudgetView::from), ..run.into() })
    }
}

/// Runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    pub(super) runs: Vec<DurableRun>,
    /// Value of `?cursor=` for the next page; null on the last one.
    pub(super) next_cursor: Option<String>,
}

/// A recorded model call of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunCallView {
    /// Execution that made the call, the last of `tries`.
    execution_id: String,
    /// Status of the execution; null if it was pruned.
    #[schema(value_type = Option<closed::ExecutionStatus>)]
    status: Option<&'static str>,
    failure_code: Option<String>,
    /// Name that the header `Longhaul-Step` gave it.
    step: Option<String>,
    /// Number among the calls of the same content or step, from 1.
    occurrence: i32,
    model: Option<String>,
    /// Time of the request that made the call.
    created_at: DateTime<Utc>,
    took_seconds: Option<f64>,
    /// Executions of the call; those before the last one failed.
    tries: i32,
    /// Answers given from the record, in the place of a call.
    saved: i32,
    tokens: i64,
    #[schema(value_type = f64)]
    cost_usd: Usd,
}

impl From<RunCall> for RunCallView {
    fn from(of: RunCall) -> Self {
        Self {
            execution_id: of.execution_id.to_string(),
            status: of.status.map(ExecutionStatus::as_str),
            failure_code: of.failure_code,
            step: of.step,
            occurrence: of.occurrence,
            model: of.model,
            created_at: of.made_at,
            took_seconds: of.took_seconds,
            tries: of.tries,
            saved: of.hits,
            tokens: of.tokens,
            cost_usd: of.cost,
        }
    }
}

/// Calls of a run, in the order in which they were first made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunCallPage {
    pub(super) calls: Vec<RunCallView>,
    /// Value of `?cursor=` for the next page; null on the last one.
    pub(super) next_cursor: Option<String>,
}
