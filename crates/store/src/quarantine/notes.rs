//! Activities that a suspect announces before it begins them: after a death its worker cannot tell.

use crate::{Store, StoreError};
use longhaul_domain::{ExecutionId, LeaseToken, WorkerId};

/// Old notes that one statement looks at.
const OLD_NOTES: i64 = 1_000;

impl Store {
    /// Records the next activity of a suspect, and the memory of its process. Records nothing if the lease is
    /// lost.
    ///
    /// # Errors
    /// The lease waits for its renewal, or Postgres is unavailable.
    pub async fn note_suspect(
        &self,
        worker: WorkerId,
        (id, token): (ExecutionId, LeaseToken),
        phase: &str,
        memory_bytes: Option<i64>,
    ) -> Result<(), StoreError> {
        let noted = sqlx::query!(
            r#"
            with me as materialized (
                select id from workers where id = $1 and dead_at is null for key share
            )
            insert into suspect_notes as n (execution_id, worker_id, attempt, phase, memory_bytes, at)
            select e.id, $1, e.attempt, $4, $5, longhaul_now()
            from me, executions e
            where e.id = $2 and e.worker_id is not distinct from $1 and e.lease_token = $3
            on conflict (execution_id) do update
            set worker_id = excluded.worker_id, attempt = excluded.attempt, phase = excluded.phase,
                memory_bytes = excluded.memory_bytes, at = excluded.at
            "#,
            worker.0,
            id.0,
            token.0,
            phase,
            memory_bytes,
        )
        .execute(&self.pool)
        .await?;
        if noted.rows_affected() > 0 {
            return Ok(());
        }
        let refused = self.why_refused(worker, id, token).await;
        if matches!(refused, StoreError::LeaseLost) { Ok(()) } else { Err(refused) }
    }

    /// Deletes notes about executions that are no longer suspects, of the oldest notes. One of a suspect counts as
    /// written now, so that the oldest are not read again.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn tidy_suspect_notes(&self) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            with old as materialized (
                select n.execution_id, exists (
                    select from executions e where e.id = n.execution_id and e.finished_at is null and e.crash_count > 0
                ) as is_suspect
                from suspect_notes n where n.at < longhaul_now() - interval '10 minutes'
                order by n.at limit $1
                for update of n skip locked
            ),
            kept as (
                update suspect_notes n set at = longhaul_now() from old
                where n.execution_id = old.execution_id and old.is_suspect
            )
            delete from suspect_notes n using old where n.execution_id = old.execution_id and not old.is_suspect
            "#,
            OLD_NOTES,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
