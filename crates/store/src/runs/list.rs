//! Lists of runs and of their calls, and what the record saved.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, ExecutionStatus, RunId, RunStatus};
use longhaul_sdk::Usd;
use uuid::Uuid;

use super::run::{Run, runs};
use crate::{Store, StoreError, database::plans::begin_list, tenants::scope::TenantScope};

/// Filter of a list of runs, newest first.
#[derive(Debug, Clone)]
pub struct RunFilter {
    pub status: Option<RunStatus>,
    /// Only those older than this one, the last of the previous page.
    pub before: Option<RunId>,
    /// Most rows.
    pub limit: i64,
}

/// A recorded call of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCall {
    /// Place among the calls of its run, which stays when the execution is replaced.
    pub id: Uuid,
    /// Name of its step, if the request gave one.
    pub step: Option<String>,
    /// Number of the call among those of the same content or step, from 1.
    pub occurrence: i32,
    pub execution_id: ExecutionId,
    /// `None` if the execution was pruned.
    pub status: Option<ExecutionStatus>,
    pub failure_code: Option<String>,
    /// Model of its last turn; before that, the one it was asked of.
    pub model: Option<String>,
    /// Time of the request that stored the execution.
    pub made_at: DateTime<Utc>,
    /// Time from its submit to its end, in seconds.
    pub took_seconds: Option<f64>,
    /// Answers given from the record.
    pub hits: i32,
    /// Executions of the call, with those that failed and were replaced.
    pub tries: i32,
    /// Of all its executions.
    pub tokens: i64,
    /// Of all its executions, as far as prices are known.
    pub cost: Usd,
}

/// Sums over the calls of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSummary {
    /// Recorded calls.
    pub calls: i64,
    /// Calls that have not ended.
    pub open: i64,
    /// Answers given from the record.
    pub saved: i64,
    pub tokens: i64,
    /// As far as prices are known.
    pub cost: Usd,
    /// Cost of the calls that were answered from the record, as often as they were.
    pub saved_cost: Usd,
}

impl Store {
    /// The runs that pass `filter`, newest first.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn list_runs(&self, scope: &TenantScope, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        let tenants = scope.ids();
        let before = filter.before.map_or(Uuid::max(), |before| before.0);
        let tenants = tenants.as_deref() as Option<&[Uuid]>;
        let mut connection = begin_list(&self.pool).await?;
        // One backward scan of an index per tenant, of another index with a status.
        let runs = match filter.status {
            Some(status) => {
                runs!(
                    r#"
                    from (select id as tenant_id from tenants where $1::uuid[] is null or id = any ($1)) t
                    cross join lateral (
                        select * from runs r
                        where r.tenant_id = t.tenant_id and r.execution_id is null and r.id < $2 and r.status = $4
                        order by r.id desc
                        limit $3
                    ) r
                    order by r.id desc
                    limit $3
                    "#,
                    tenants,
                    before,
                    filter.limit,
                    status.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?
            }
            None => {
                runs!(
                    r#"
                    from (select id as tenant_id from tenants where $1::uuid[] is null or id = any ($1)) t
                    cross join lateral (
                        select * from runs r
                        where r.tenant_id = t.tenant_id and r.execution_id is null and r.id < $2
                        order by r.id desc
                        limit $3
                    ) r
                    order by r.id desc
                    limit $3
                    "#,
                    tenants,
                    before,
                    filter.limit,
                )
                .fetch_all(&mut *connection)
                .await?
            }
        };
        Ok(runs)
    }

    /// Recorded calls of a run after the one named `after`, in the order in which they were first made; at most
    /// `limit`.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn run_calls(&self, run: RunId, after: Option<Uuid>, limit: i64) -> Result<Vec<RunCall>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select c.id, c.step, c.occurrence, c.execution_id, c.made_at, c.hits, c.tries,
                e.status::text as "status?: ExecutionStatus", e.failure_code as "failure_code?",
                coalesce(turn.model, p.overrides #>> '{model,name}') as model,
                extract(epoch from e.finished_at - e.created_at)::float8 as took_seconds,
                c.replaced_tokens + coalesce(e.input_tokens + e.output_tokens, 0) as "tokens!",
                c.replaced_cost + coalesce(e.cost, 0) as "cost!"
            from run_calls c
            left join executions e on e.id = c.execution_id
            left join execution_payloads p on p.execution_id = c.execution_id
            left join lateral (
                select v.data ->> 'model' as model from events v
                where v.execution_id = c.execution_id and v.kind = 'turn' order by v.seq desc limit 1
            ) turn on true
            where c.run_id = $1 and c.id > $2
            order by c.id
            limit $3
            "#,
            run.0,
            after.unwrap_or(Uuid::nil()),
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let calls = rows.into_iter().map(|row| RunCall {
            id: row.id,
            step: row.step,
            occurrence: row.occurrence,
            execution_id: ExecutionId(row.execution_id),
            status: row.status,
            failure_code: row.failure_code,
            model: row.model,
            made_at: row.made_at,
            took_seconds: row.took_seconds,
            hits: row.hits,
            tries: row.tries,
            tokens: row.tokens,
            cost: Usd::from_nanos(row.cost),
        });
        Ok(calls.collect())
    }

    /// Sums over the calls of a run.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn run_summary(&self, run: RunId) -> Result<RunSummary, StoreError> {
        let row = sqlx::query!(
            r#"
            select count(*) as "calls!", count(*) filter (where e.id is not null and e.finished_at is null) as "open!",
                coalesce(sum(c.hits), 0) as "saved!",
                coalesce(sum(c.replaced_tokens + coalesce(e.input_tokens + e.output_tokens, 0)), 0)::bigint
                    as "tokens!",
                coalesce(sum(c.replaced_cost + coalesce(e.cost, 0)), 0)::bigint as "cost!",
                least(coalesce(sum(c.hits * coalesce(e.cost, 0)::numeric), 0), 1e18)::bigint as "saved_cost!"
            from run_calls c left join executions e on e.id = c.execution_id
            where c.run_id = $1
            "#,
            run.0,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(RunSummary {
            calls: row.calls,
            open: row.open,
            saved: row.saved,
            tokens: row.tokens,
            cost: Usd::from_nanos(row.cost),
            saved_cost: Usd::from_nanos(row.saved_cost),
        })
    }
}
