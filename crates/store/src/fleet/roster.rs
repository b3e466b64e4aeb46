//! The workers as an operator sees them, and the request to drain one.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, WorkerId};
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use crate::{Store, StoreError, tenants::scope::TenantScope};

/// Lost executions that are listed at most.
const MAX_LOST: i64 = 200;

/// State of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WorkerState {
    /// It renews its lease and claims.
    Live,
    /// It renews its lease and claims nothing more.
    Draining,
    /// Its lease has expired, and it was not declared dead yet.
    Late,
    /// It has signed off, or was declared dead.
    Dead,
}

longhaul_domain::named!(WorkerState);

/// A worker that lives, or died within the last hour.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedWorker {
    pub id: WorkerId,
    pub host: String,
    pub pid: i32,
    pub build: String,
    pub queues: Vec<String>,
    /// Executions that it runs at a time at most.
    pub concurrency: i32,
    /// Executions that it holds, of all tenants.
    pub held: i64,
    pub state: WorkerState,
    pub started_at: DateTime<Utc>,
    pub draining_since: Option<DateTime<Utc>>,
    pub dead_at: Option<DateTime<Utc>>,
    /// Last renewal of its lease.
    pub renewed_at: Option<DateTime<Utc>>,
    pub expires_at: Option<DateTime<Utc>>,
    /// Start of the current run of renewals without a gap.
    pub steady_since: Option<DateTime<Utc>>,
    /// Resident memory at the last renewal.
    pub memory_bytes: Option<i64>,
}

/// An execution that a worker holds, or held when it died.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerExecution {
    pub id: ExecutionId,
    pub org_id: String,
    pub group_id: Option<String>,
    pub definition_key: String,
    pub agent_key: String,
    pub queue: String,
    pub attempt: i32,
    /// Time of the claim.
    pub since: DateTime<Utc>,
    /// Time of the death, if the worker lost it.
    pub lost_at: Option<DateTime<Utc>>,
}

impl Store {
    /// Up to `limit` workers in the order of their ids, after `after`; of all states if `state` is absent. Dead ones
    /// are listed for an hour.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_workers(
        &self,
        state: Option<WorkerState>,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<ListedWorker>, StoreError> {
        self.read_workers(None, state, after, limit).await
    }

    /// The worker of that id.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_worker(&self, id: Uuid) -> Result<Option<ListedWorker>, StoreError> {
        Ok(self.read_workers(Some(id), None, None, 1).await?.into_iter().next())
    }

    async fn read_workers(
        &self,
        id: Option<Uuid>,
        state: Option<WorkerState>,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<ListedWorker>, StoreError> {
        let state = state.map(WorkerState::as_str);
        let workers = sqlx::query_file_as!(ListedWorker, "src/sql/workers.sql", id, state, after, limit);
        Ok(workers.fetch_all(&self.pool).await?)
    }

    /// Up to `limit` executions of `reach` that a worker holds, in the order of their ids, after `after`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn held_by(
        &self,
        reach: &TenantScope,
        worker: WorkerId,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<WorkerExecution>, StoreError> {
        let tenants = reach.ids();
        let rows = sqlx::query_as!(
            WorkerExecution,
            r#"
            select e.id, t.org_id, nullif(t.group_id, '') as group_id, e.definition_key, e.agent_key, e.queue,
                e.attempt, e.claimed_at as "since!", null::timestamptz as lost_at
            from executions e join tenants t on t.id = e.tenant_id
            where e.worker_id = $1 and ($2::uuid[] is null or e.tenant_id = any ($2))
                and ($3::uuid is null or e.id > $3)
            order by e.id
            limit $4
            "#,
            worker.0,
            tenants.as_deref(),
            after,
            limit,
        );
        Ok(rows.fetch_all(&self.pool).await?)
    }

    /// Executions of `reach` that a worker held when it was declared dead, newest first; at most 200.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn lost_by(&self, reach: &TenantScope, worker: WorkerId) -> Result<Vec<WorkerExecution>, StoreError> {
        let tenants = reach.ids();
        let rows = sqlx::query_as!(
            WorkerExecution,
            r#"
            select e.id, t.org_id, nullif(t.group_id, '') as group_id, e.definition_key, e.agent_key, e.queue,
                a.number as attempt, a.started_at as since, a.ended_at as "lost_at?"
            from attempts a join executions e on e.id = a.execution_id join tenants t on t.id = e.tenant_id
            where a.worker_id = $1 and a.outcome = 'lost' and ($2::uuid[] is null or e.tenant_id = any ($2))
            order by e.id desc
            limit $3
            "#,
            worker.0,
            tenants.as_deref(),
            MAX_LOST,
        );
        Ok(rows.fetch_all(&self.pool).await?)
    }

    /// Asks a worker to drain; it learns of it with its next renewal. Returns false if no such worker lives.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn drain_worker(&self, id: Uuid) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "update workers set draining_since = coalesce(draining_since, clock_timestamp()) \
             where id = $1 and dead_at is null",
            id,
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}
