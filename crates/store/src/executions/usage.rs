//! What a tenant's executions of a span of time spent, and how they ended.
//!
//! An execution counts where its id says that it was submitted, as a whole: ids begin with the time, so a span is a
//! range of ids. A span that holds more than [`UsageBounds`] is cut at its older end, and the answer says where
//! (docs/design/api.md).

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::plans::{Plans, plan_along_indexes},
    executions::list_filter::uuid_floor,
    tenants::scope::TenantScope,
};
use longhaul_domain::ExecutionId;
use longhaul_sdk::Usd;

/// Most rows of [`UsageSummary::spend`].
pub const USAGE_GROUPS: i64 = 200;
/// Most rows of [`UsageSummary::agents`].
pub const USAGE_AGENTS: i64 = 100;
/// Most failure codes of one agent.
pub const USAGE_CODES: i64 = 5;
/// How far the first look for the start of what is summed goes back; each further one goes four times as far.
const SHORTEST_LOOK: TimeDelta = TimeDelta::minutes(1);

/// A span of time, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageSpan {
    pub since: DateTime<Utc>,
    pub until: DateTime<Utc>,
}

/// What one summary reads at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageBounds {
    pub executions: i64,
    /// Model and tool calls of these executions.
    pub calls: i64,
}

/// Summary of the executions submitted from `covered_since` to the end of the span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSummary {
    /// The start of the span, or later if the span holds more than the bounds.
    pub covered_since: DateTime<Utc>,
    pub executions: ExecutionNumbers,
    pub total: SpendSum,
    /// The most expensive first.
    pub spend: Vec<SpendGroup>,
    /// The one with the most failures first.
    pub agents: Vec<AgentUsage>,
}

/// Numbers of executions.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionNumbers {
    pub submitted: i64,
    pub finished: i64,
    pub failed: i64,
}

/// Sums over model calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SpendSum {
    pub calls: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    /// Part of the input tokens that was read from providers' caches.
    pub cached_tokens: i64,
    /// Cost of the calls whose price is known.
    pub cost: Usd,
    /// Answered calls of unknown cost.
    pub uncosted_calls: i64,
}

/// Model calls of a tenant's executions of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendGroup {
    pub org_id: String,
    pub group_id: Option<String>,
    pub agent: String,
    pub model: String,
    pub sum: SpendSum,
}

/// Executions of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentUsage {
    pub agent: String,
    pub executions: ExecutionNumbers,
    /// The most frequent first.
    pub failures: Vec<FailureUsage>,
}

/// Executions of an agent that failed with the same code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureUsage {
    pub code: String,
    pub class: String,
    pub executions: i64,
    /// The newest of them.
    pub newest: ExecutionId,
    /// First 500 characters of the newest one's failure text; `None` if it was erased.
    pub summary: Option<String>,
}

impl UsageSpan {
    fn ids(self) -> (Uuid, Uuid) {
        (uuid_floor(self.since), uuid_floor(self.until))
    }
}

impl Store {
    /// Summarises the executions submitted in `span`, or in as much of its newer end as `bounds` allow.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn usage(
        &self,
        reach: &TenantScope,
        span: UsageSpan,
        bounds: UsageBounds,
    ) -> Result<UsageSummary, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!("set transaction isolation level repeatable read, read only").execute(&mut *transaction).await?;
        // No statement may read a table, or an index of all tenants, from end to end, whatever the planner believes
        // (docs/design/storage.md).
        plan_along_indexes(&mut transaction, Plans::Generic).await?;
        let mut reader = UsageReader { transaction, tenants: reach.ids(), bounds };
        let covered_since = reader.covered_since(span).await?;
        let covered = UsageSpan { since: covered_since, ..span };
        let (total, spend) = reader.spend(covered).await?;
        let (executions, agents) = reader.agents(covered).await?;
        Ok(UsageSummary { covered_since, executions, total, spend, agents })
    }
}

/// The statements of one summary, in one snapshot.
struct UsageReader {
    transaction: Transaction<'static, Postgres>,
    tenants: Option<Vec<Uuid>>,
    bounds: UsageBounds,
}

impl UsageReader {
    fn fits(&self, held: UsageBounds) -> bool {
        held.executions <= self.bounds.executions && held.calls <= self.bounds.calls
    }

    fn is_half(&self, held: UsageBounds) -> bool {
        held.executions > self.bounds.executions / 2 || held.calls > self.bounds.calls / 2
    }

    /// The start of the span or, if the span holds more than the bounds, a later one from which it holds between half
    /// of them and all. Looks back from the end, so that it reads little more than what is then summed.
    async fn covered_since(&mut self, span: UsageSpan) -> Result<DateTime<Utc>, StoreError> {
        let (mut covered, mut held, mut length) = (span.until, UsageBounds { executions: 0, calls: 0 }, SHORTEST_LOOK);
        let mut too_early = loop {
            if covered == span.since {
                return Ok(covered);
            }
            let start = span.since.max(span.until - length);
            let found = self.held(UsageSpan { since: start, ..span }).await?;
            if !self.fits(found) {
                break start;
            }
            (covered, held, length) = (start, found, length * 4);
        };
        while !self.is_half(held) && covered - too_early > TimeDelta::milliseconds(1) {
            let middle = too_early + (covered - too_early) / 2;
            let found = self.held(UsageSpan { since: middle, ..span }).await?;
            if self.fits(found) {
                (covered, held) = (middle, found);
            } else {
                too_early = middle;
            }
        }
        Ok(covered)
    }

    /// Numbers of executions and calls in a span; counts no further than one execution above the bound.
    async fn held(&mut self, span: UsageSpan) -> Result<UsageBounds, StoreError> {
        let (low, high) = span.ids();
        let row = sqlx::query_file!(
            "src/sql/usage_held.sql",
            self.tenants.as_deref() as Option<&[Uuid]>,
            low,
            high,
            self.bounds.executions + 1,
        )
        .fetch_one(&mut *self.transaction)
        .await?;
        Ok(UsageBounds { executions: row.executions, calls: row.calls })
    }

    /// The sum over all groups, and the first [`USAGE_GROUPS`] of them.
    async fn spend(&mut self, span: UsageSpan) -> Result<(SpendSum, Vec<SpendGroup>), StoreError> {
        let ((low, high), most) = (span.ids(), self.bounds.executions);
        let tenants = self.tenants.as_deref() as Option<&[Uuid]>;
        let read = sqlx::query_file!("src/sql/usage_spend.sql", tenants, low, high, most, USAGE_GROUPS);
        let (mut total, mut groups) = (SpendSum::default(), Vec::new());
        for row in read.fetch_all(&mut *self.transaction).await? {
            let sum = SpendSum {
                calls: row.calls,
                input_tokens: row.input_tokens,
                output_tokens: row.output_tokens,
                cached_tokens: row.cached_tokens,
                cost: Usd::from_nanos(row.cost),
                uncosted_calls: row.uncosted_calls,
            };
            match (row.org_id, row.agent, row.model) {
                (Some(org_id), Some(agent), Some(model)) => {
                    groups.push(SpendGroup { org_id, group_id: row.group_id, agent, model, sum });
                }
                _ => total = sum,
            }
        }
        Ok((total, groups))
    }

    /// The numbers of all agents together, and the first [`USAGE_AGENTS`] of them.
    async fn agents(&mut self, span: UsageSpan) -> Result<(ExecutionNumbers, Vec<AgentUsage>), StoreError> {
        let ((low, high), most) = (span.ids(), self.bounds.executions);
        let tenants = self.tenants.as_deref() as Option<&[Uuid]>;
        let read = sqlx::query_file!("src/sql/usage_agents.sql", tenants, low, high, most, USAGE_AGENTS, USAGE_CODES);
        let (mut all, mut agents) = (ExecutionNumbers::default(), Vec::<AgentUsage>::new());
        for row in read.fetch_all(&mut *self.transaction).await? {
            all =
                ExecutionNumbers { submitted: row.all_executions, finished: row.all_finished, failed: row.all_failed };
            if agents.last().is_none_or(|last| last.agent != row.agent) {
                let executions =
                    ExecutionNumbers { submitted: row.executions, finished: row.finished, failed: row.failed };
                agents.push(AgentUsage { agent: row.agent, executions, failures: Vec::new() });
            }
            if let (Some(last), Some(code), Some(class), Some(executions), Some(newest)) =
                (agents.last_mut(), row.code, row.class, row.of_code, row.newest)
            {
                let (newest, summary) = (ExecutionId(newest), row.summary);
                last.failures.push(FailureUsage { code, class, executions, newest, summary });
            }
        }
        Ok((all, agents))
    }
}
