//! Workers over HTTP: whose they are, and what an API process has to know of the leases that they hold. Their leases,
//! claims and writes are those of every worker.

use std::{collections::HashMap, time::Duration};

use longhaul_domain::{
    AgentVersionId, DefinitionVersionId, ExecutionId, LeaseToken, RetryCounters, TenantId, WorkerId,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{Store, StoreError, executions::lease_state::lease_state};

/// A live worker over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteWorker {
    /// Tenant whose key registered it; `None` for a worker with a connection to Postgres.
    pub tenant: Option<TenantId>,
    pub build: String,
    pub queues: Vec<String>,
    /// Serve keys that it satisfied when it registered.
    pub serves: Vec<String>,
    /// Maximum executions held.
    pub concurrency: i32,
}

/// A live worker's executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Number that it holds.
    pub held: i64,
    /// True if it is to claim nothing more.
    pub is_draining: bool,
}

/// What the end of a lease depends on beside its worker's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseFacts {
    pub id: ExecutionId,
    pub definition: DefinitionVersionId,
    pub agent: AgentVersionId,
    pub retries: RetryCounters,
    pub wake_seq: i32,
    /// Owner of its budget, if it has one.
    pub budget_root: Option<ExecutionId>,
    pub is_in_session: bool,
}

impl Store {
    /// Makes a worker that was just registered one that keys of a tenant alone may speak for.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn own_worker(&self, id: WorkerId, tenant: TenantId) -> Result<(), StoreError> {
        sqlx::query!("update workers set tenant_id = $2 where id = $1", id.0, tenant.0).execute(&self.pool).await?;
        Ok(())
    }

    /// A worker that was not declared dead.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn remote_worker(&self, id: WorkerId) -> Result<Option<RemoteWorker>, StoreError> {
        let worker = sqlx::query_as!(
            RemoteWorker,
            r#"
            select tenant_id as "tenant: _", build, queues, serves, concurrency from workers
            where id = $1 and dead_at is null
            "#,
            id.0,
        );
        Ok(worker.fetch_optional(&self.pool).await?)
    }

    /// Number of live workers that keys of a tenant registered.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn count_remote_workers(&self, tenant: TenantId) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar!(
            r#"select count(*) as "count!" from workers where tenant_id = $1 and dead_at is null"#,
            tenant.0,
        );
        Ok(count.fetch_one(&self.pool).await?)
    }

    /// What a worker holds, and if it may claim; `None` if it was declared dead.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn standing(&self, worker: WorkerId) -> Result<Option<Standing>, StoreError> {
        let standing = sqlx::query_as!(
            Standing,
            r#"
            select (select count(*) from executions e where e.worker_id = w.id) as "held!",
                draining_since is not null as "is_draining!"
            from workers w where id = $1 and dead_at is null
            "#,
            worker.0,
        );
        Ok(standing.fetch_optional(&self.pool).await?)
    }

    /// Queue of the execution, if the worker lives and holds it under that token.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn held_queue(
        &self,
        worker: WorkerId,
        id: ExecutionId,
        token: LeaseToken,
    ) -> Result<Option<String>, StoreError> {
        let state = self.lease_states(&[id.0]).await?.remove(&id.0);
        Ok(state.filter(|state| lease_state(worker, token, state).is_some()).map(|state| state.queue))
    }

    /// Time left of an execution of `tenant` that a live worker holds under that token; `None` if none does.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn time_of_held(
        &self,
        tenant: TenantId,
        id: ExecutionId,
        token: LeaseToken,
    ) -> Result<Option<Duration>, StoreError> {
        let seconds = sqlx::query_scalar!(
            r#"
            select extract(epoch from e.deadline_at - longhaul_now())::float8 as "seconds!"
            from executions e join workers w on w.id = e.worker_id and w.dead_at is null
            where e.id = $1 and e.tenant_id = $2 and e.lease_token = $3
            "#,
            id.0,
            tenant.0,
            token.0,
        );
        let seconds = seconds.fetch_optional(&self.pool).await?;
        Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    }

    /// Metadata of these executions.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn metadata_of(&self, ids: &[ExecutionId]) -> Result<HashMap<ExecutionId, Value>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows =
            sqlx::query!("select id, metadata from executions where id = any ($1)", &ids).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|row| (ExecutionId(row.id), row.metadata)).collect())
    }

    /// Facts about those of these executions that the worker holds.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn lease_facts(&self, worker: WorkerId, ids: &[ExecutionId]) -> Result<Vec<LeaseFacts>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = sqlx::query!(
            r#"
            select id, definition_version_id, agent_version_id, transient_retries, tool_error_retries,
                llm_error_retries, wake_seq,
                case when has_budget then coalesce(budget_id, root_id, id) end as budget_root,
                session_id is not null as "is_in_session!"
            from executions where id = any ($1) and worker_id is not distinct from $2
            "#,
            &ids,
            worker.0,
        )
        .fetch_all(&self.pool)
        .await?;
        let count = |stored: i16| u32::from(stored.unsigned_abs());
        let facts = rows.into_iter().map(|row| LeaseFacts {
            id: ExecutionId(row.id),
            definition: row.definition_version_id.into(),
            agent: row.agent_version_id.into(),
            retries: RetryCounters {
                transient: count(row.transient_retries),
                tool_error: count(row.tool_error_retries),
                llm_error: count(row.llm_error_retries),
            },
            wake_seq: row.wake_seq,
            budget_root: row.budget_root.map(ExecutionId),
            is_in_session: row.is_in_session,
        });
        Ok(facts.collect())
    }
}
