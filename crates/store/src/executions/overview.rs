//! What the overview of a tenant shows besides its newest executions: what waits, and which models were paid for.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{Store, StoreError, columns::Nanos, tenants::scope::TenantScope};
use longhaul_domain::ExecutionId;
use longhaul_sdk::Usd;

/// Most open executions that [`Store::waiting_by_queue`] reads.
pub const WAITING_READ: i64 = 20_000;
/// Most groups that either statement returns.
const GROUPS: i64 = 50;

/// Executions of a queue that wait for the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub queue: String,
    pub wait_reason: String,
    pub executions: i64,
    /// Submit of the oldest.
    pub oldest: DateTime<Utc>,
}

/// Calls of a model by the executions of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spend {
    pub agent: String,
    pub model: String,
    pub calls: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    /// Cost of the calls whose price is known.
    pub cost: Usd,
}

impl Store {
    /// Open executions by queue and wait reason, of the first [`WAITING_READ`] open ones.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn waiting_by_queue(&self, reach: &TenantScope) -> Result<Vec<Waiting>, StoreError> {
        let tenants = reach.ids();
        let rows = sqlx::query_as!(
            Waiting,
            r#"
            select w.queue, w.wait_reason as "wait_reason!", count(*) as "executions!", min(w.created_at) as "oldest!"
            from (
                select queue, wait_reason, created_at
                from executions
                where finished_at is null and wait_reason is not null
                    and ($1::uuid[] is null or tenant_id = any($1))
                limit $2
            ) w
            group by w.queue, w.wait_reason
            order by 3 desc
            limit $3
            "#,
            tenants.as_deref() as Option<&[Uuid]>,
            WAITING_READ,
            GROUPS,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// Model calls of those executions, by agent and model; the most expensive first.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn spend_of(&self, executions: &[(ExecutionId, &str)]) -> Result<Vec<Spend>, StoreError> {
        let (ids, agents): (Vec<Uuid>, Vec<String>) =
            executions.iter().map(|(id, agent)| (id.0, (*agent).to_owned())).unzip();
        let spend = sqlx::query_as!(
            Spend,
            r#"
            select
                e.agent as "agent!",
                coalesce(s.name, '') as "model!",
                count(*) as "calls!",
                coalesce(sum(s.input_tokens), 0)::bigint as "input_tokens!",
                coalesce(sum(s.output_tokens), 0)::bigint as "output_tokens!",
                coalesce(sum(s.cost), 0)::bigint as "cost!: Nanos"
            from unnest($1::uuid[], $2::text[]) e (id, agent)
            join steps s on s.execution_id = e.id
            where s.execution_id = any($1) and s.kind in ('turn', 'compression', 'aggregation') and s.attempt > 0
            group by 1, 2
            order by 6 desc, 3 desc
            limit $3
            "#,
            &ids,
            &agents,
            GROUPS,
        );
        Ok(spend.fetch_all(&self.pool).await?)
    }
}
