//! Runs as they stand, and their beginning.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_domain::{ApiKeyId, ExecutionId, RunId, RunStatus, TenantId};
use longhaul_sdk::{Usd, spec::BudgetSpec};
use uuid::Uuid;

use crate::{Store, StoreError, executions::budgets::Caps, tenants::scope::TenantScope};

/// A run to begin.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub tenant: TenantId,
    /// Name that its caller gave it, of 1 to 200 characters.
    pub key: String,
    /// Budget of all its calls together, in the place of their own.
    pub budget: Option<BudgetSpec>,
    /// Longest life, from now.
    pub deadline: Duration,
    pub made_by: ApiKeyId,
    /// Execution whose model calls it holds, if it is not a program's: it spends its budget.
    pub execution: Option<ExecutionId>,
}

/// A durable run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Also the root of its budget ([`Store::read_budget`], [`Store::raise_budget`]).
    pub id: RunId,
    pub tenant_id: TenantId,
    pub key: String,
    pub status: RunStatus,
    pub created_at: DateTime<Utc>,
    pub deadline_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    /// Reason for a failure.
    pub note: Option<String>,
    pub made_by: Option<ApiKeyId>,
    /// Calls recorded so far.
    pub calls: i32,
    /// Attempts that asked for a call.
    pub attempts: i32,
}

/// Selects runs `r`.
macro_rules! runs {
    ($from:literal, $($bind:expr),* $(,)?) => {
        sqlx::query_as!(
            crate::runs::Run,
            r#"
            select r.id as "id: _", r.tenant_id as "tenant_id: _", r.key, r.status as "status: _", r.created_at,
                r.deadline_at, r.ended_at, r.note, r.made_by as "made_by: _", r.calls, r.attempts
            "# + $from,
            $($bind),*
        )
    };
}
pub(super) use runs;

impl Store {
    /// Begins a run, or finds the one of that key as it is, ended or not. True if it is new.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable.
    pub async fn put_run(&self, new: &NewRun) -> Result<(Run, bool), StoreError> {
        let scope = TenantScope::from(new.tenant);
        if let Some(run) = self.run_by_key(&scope, &new.key).await? {
            return Ok((run, false));
        }
        let id = self.insert_run(new).await?;
        let run = self.run_by_key(&scope, &new.key).await?;
        let run = run.ok_or_else(|| StoreError::Conflict("a run vanished while it was read".into()))?;
        let is_new = id == Some(run.id.0);
        Ok((run, is_new))
    }

    /// Stores a run and its budget; `None` if the key is taken.
    async fn insert_run(&self, new: &NewRun) -> Result<Option<Uuid>, StoreError> {
        let caps = new.budget.as_ref().map(Caps::from).unwrap_or_default();
        let mut transaction = self.pool.begin().await?;
        let id = sqlx::query_scalar!(
            r#"
            insert into runs (id, tenant_id, key, created_at, opened_at, deadline_at, made_by, execution_id)
            select longhaul_uuid(), $1, $2, now.now, now.now, now.now + $3 * interval '1 second', $4, $5
            from (select longhaul_now() as now) now
            on conflict on constraint runs_key do nothing
            returning id
            "#,
            new.tenant.0,
            new.key,
            new.deadline.as_secs_f64(),
            new.made_by.0,
            new.execution.map(|execution| execution.0),
        )
        .fetch_optional(&mut *transaction)
        .await?;
        if let Some((id, budget)) = id.zip(new.budget.as_ref()) {
            sqlx::query!(
                "insert into budgets (root_id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted) \
                 values ($1, $2, $3, $4, $5, $6)",
                id,
                new.tenant.0,
                caps.max_cost.map(Usd::nanos),
                caps.max_tokens,
                caps.max_calls,
                budget.on_exhausted.as_str(),
            )
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(id)
    }

    /// The run of that key, within `scope`; the newest if several tenants have one.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn run_by_key(&self, scope: &TenantScope, key: &str) -> Result<Option<Run>, StoreError> {
        let tenants = scope.ids();
        let run = runs!(
            r#"
            from (select id as tenant_id from tenants where $1::uuid[] is null or id = any ($1)) t
            join runs r on r.tenant_id = t.tenant_id and r.key = $2
            order by r.id desc limit 1
            "#,
            tenants.as_deref() as Option<&[Uuid]>,
            key,
        );
        Ok(run.fetch_optional(&self.pool).await?)
    }
}
