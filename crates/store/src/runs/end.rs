//! Ends of runs.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, RunStatus, TenantId};
use uuid::Uuid;

use super::run::Run;
use crate::{Store, StoreError, history::prune::OldItem};

/// Executions cancelled by one statement.
const CANCELLED: i64 = 100;
/// Note of a run whose deadline has passed.
const DEADLINE_PASSED: &str = "the deadline of the run has passed";

/// An end of a run, as its script tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    Finished,
    /// With the reason, which people see.
    Failed(String),
}

impl Store {
    /// Ends an open run, and returns it as it then is; one that has ended stays as it is. `None` if the tenant has none
    /// of that key. Calls under way go on.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable.
    pub async fn end_run(&self, tenant: TenantId, key: &str, end: &RunEnd) -> Result<Option<Run>, StoreError> {
        let (status, note) = match end {
            RunEnd::Finished => ("finished", None),
            RunEnd::Failed(note) => ("failed", Some(note.as_str())),
        };
        self.close_run(tenant, key, status, note).await
    }

    async fn close_run(
        &self,
        tenant: TenantId,
        key: &str,
        status: &str,
        note: Option<&str>,
    ) -> Result<Option<Run>, StoreError> {
        sqlx::query!(
            "update runs set status = $3, note = $4, ended_at = longhaul_now() \
             where tenant_id = $1 and key = $2 and status = 'open'",
            tenant.0,
            key,
            status,
            note,
        )
        .execute(&self.pool)
        .await?;
        self.run_by_key(&tenant.into(), key).await
    }

    /// Ends an open run as cancelled, and cancels its calls under way; a repeat cancels those that a failure left.
    /// Returns the run as it then is and the executions that have ended or whose workers are to be told; `None` if the
    /// tenant has no run of that key.
    ///
    /// # Errors
    /// Postgres is unavailable; what was cancelled stays so.
    pub async fn cancel_run(&self, tenant: TenantId, key: &str) -> Result<Option<(Run, Vec<ExecutionId>)>, StoreError> {
        let Some(run) = self.close_run(tenant, key, "cancelled", None).await? else { return Ok(None) };
        let mut cancelled = Vec::new();
        loop {
            // The run has ended, so no call is added; each of these leaves the selection when it is cancelled.
            let open = sqlx::query_scalar!(
                r#"
                select e.id from run_calls c join executions e on e.id = c.execution_id
                where c.run_id = $1 and e.finished_at is null and e.cancel_requested_at is null
                limit $2
                "#,
                run.id.0,
                CANCELLED,
            )
            .fetch_all(&self.pool)
            .await?;
            if run.status == RunStatus::Open || open.is_empty() {
                return Ok(Some((run, cancelled)));
            }
            let done = self.cancel_patiently(&open, tenant, "its run was cancelled").await?;
            cancelled.extend(done.into_iter().map(|(id, _)| id));
        }
    }

    /// Opens a run again that failed or was cancelled, with as much time as it had; its record and its budget stay. One
    /// that is open or finished stays as it is. Returns the run as it then is; `None` if the tenant has none of that
    /// key.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn reopen_run(&self, tenant: TenantId, key: &str) -> Result<Option<Run>, StoreError> {
        sqlx::query!(
            r#"
            update runs
            set status = 'open', note = null, ended_at = null, deadline_at = now.now + (deadline_at - opened_at),
                opened_at = now.now
            from (select longhaul_now() as now) now
            where tenant_id = $1 and key = $2 and status in ('failed', 'cancelled')
            "#,
            tenant.0,
            key,
        )
        .execute(&self.pool)
        .await?;
        self.run_by_key(&tenant.into(), key).await
    }

    /// Ends up to `limit` open runs as failed whose deadline has passed. Their executions end by their own deadlines.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn end_overdue_runs(&self, limit: i64) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            r#"
            update runs set status = 'failed', note = $2, ended_at = longhaul_now()
            where id in (
                select id from runs where status = 'open' and deadline_at <= longhaul_now()
                order by deadline_at limit $1 for no key update skip locked
            )
            "#,
            limit,
            DEADLINE_PASSED,
        );
        Ok(done.execute(&self.pool).await?.rows_affected())
    }

    /// Runs that ended before `before`, after those at `after`, by their end.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn ended_runs_after(
        &self,
        after: (DateTime<Utc>, Uuid),
        before: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<(OldItem, DateTime<Utc>)>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select id, tenant_id, ended_at as "ended_at!", (calls + positions + 1)::bigint as "rows!" from runs
            where ended_at < $3 and (ended_at, id) > ($1, $2) order by ended_at, id limit $4
            "#,
            after.0,
            after.1,
            before,
            limit,
        );
        let rows = rows.fetch_all(&self.pool).await?.into_iter();
        Ok(rows.map(|row| (OldItem { id: row.id, tenant_id: row.tenant_id, rows: row.rows }, row.ended_at)).collect())
    }

    /// Deletes those of these runs that ended before `before`, with their records, which cascade, and their budgets.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn delete_ended_runs(&self, ids: &[Uuid], before: DateTime<Utc>) -> Result<i64, StoreError> {
        let gone = sqlx::query_scalar!(
            r#"
            with gone as (
                delete from runs r
                where id = any ($1) and ended_at < $2
                    -- Retries and forks of its executions spend its budget.
                    and not exists (select from executions e where e.budget_id = r.id and e.finished_at is null)
                returning id
            ),
            budget as (
                delete from budgets b using gone where b.root_id = gone.id
            )
            select count(*) as "gone!" from gone
            "#,
            ids,
            before,
        );
        Ok(gone.fetch_one(&self.pool).await?)
    }
}
