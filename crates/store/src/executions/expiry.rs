//! Deletes expired keys at the rate at which they are written: in portions, by one process at a time.

use std::time::Duration;

use crate::{Store, StoreError};
use longhaul_domain::MAX_DEADLINE;

/// Time for which an idempotency key is honoured. Retention is longer (`store::prune`), so that no key names a
/// deleted execution.
pub const KEEP_KEYS: Duration = MAX_DEADLINE;
/// Idempotency keys deleted by one statement.
pub const KEYS_PORTION: i64 = 1_000;

impl Store {
    /// Deletes up to `limit` idempotency keys older than `keep`. Returns fewer if no more are left, or another
    /// process deletes them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_idempotency_keys(&self, keep: Duration, limit: i64) -> Result<u64, StoreError> {
        let gone = sqlx::query!(
            r#"
            with mine as materialized (select pg_try_advisory_xact_lock(hashtext('longhaul.idempotency_keys'))
                as is_mine),
            old as materialized (
                select tenant_id, key from idempotency_keys
                where (select is_mine from mine) and created_at < longhaul_now() - $1 * interval '1 second'
                order by created_at limit $2 for update skip locked
            )
            delete from idempotency_keys k using old where k.tenant_id = old.tenant_id and k.key = old.key
            "#,
            keep.as_secs_f64(),
            limit,
        )
        .execute(&self.pool)
        .await?;
        Ok(gone.rows_affected())
    }

    /// Deletes up to a hundred serve keys without a submit for `keep` and without an open execution. `keep` must be
    /// longer than the time for which a process assumes that a key is stored ([`Store::put_serve_key`]). An old key
    /// with an open execution counts as put now: it is looked at again after `keep`, and the open executions are read
    /// no sooner.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_serve_keys(&self, keep: Duration) -> Result<u64, StoreError> {
        let gone = sqlx::query!(
            r#"
            with mine as materialized (select pg_try_advisory_xact_lock(hashtext('longhaul.serve_keys')) as is_mine),
            old as materialized (
                select key from serve_keys
                where (select is_mine from mine) and put_at < statement_timestamp() - $1 * interval '1 second'
                order by put_at limit 100
            ),
            -- What is open is runnable, held or parked, and each has an index: history is not read.
            open as materialized (
                select serve_key from executions where wait_reason = 'worker' and exists (select from old)
                union
                select serve_key from executions where worker_id is not null and exists (select from old)
                union
                select e.serve_key from parked p join executions e on e.id = p.execution_id
                where exists (select from old)
            ),
            used as (
                update serve_keys k set put_at = statement_timestamp()
                from old where k.key = old.key and exists (select from open where open.serve_key = k.key)
            )
            delete from serve_keys k using old
            -- A submit may have put it again meanwhile.
            where k.key = old.key and k.put_at < statement_timestamp() - $1 * interval '1 second'
                and not exists (select from open where open.serve_key = k.key)
            "#,
            keep.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(gone.rows_affected())
    }
}
