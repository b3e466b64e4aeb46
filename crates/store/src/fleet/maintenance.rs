//! Maintenance of the fleet: reaping, waking, deadlines, counts, partitions.
//!
//! The worker that takes a duty runs these (`duties.rs`). With `skip locked` they do not wait for each other, and
//! a paused process holds no lock (core-rules 10). Everything here is safe to run twice.

use std::{collections::HashMap, time::Duration};

use longhaul_sdk::FailureClass;
use uuid::Uuid;

use crate::{Store, StoreError, columns::Seconds};
pub use longhaul_domain::Runnable;
use longhaul_domain::{ExecutionId, LeaseToken, SessionId, TenantId, WaitReason, WorkerId};
use longhaul_telemetry::metrics;

/// Duties as items that they set aside name them.
const WAKE_DUE: &str = "wake due executions";
const END_OVERDUE: &str = "end overdue executions";
/// Dead workers that one statement deletes.
const DEAD_WORKERS: i64 = 1_000;

/// Pages of one part of a table that is read in parts.
pub(crate) const PART: i64 = 200;

/// An execution taken back from a dead worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    pub id: ExecutionId,
    pub queue: String,
    /// Worker that died.
    pub worker: WorkerId,
    /// Failure code if it ended; `None` if it became runnable.
    pub failure_code: Option<String>,
    /// Concurrency limits of which it may have held slots.
    pub slot_keys: Vec<String>,
    pub attempt: LostAttempt,
}

/// The attempt that a dead worker left unfinished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostAttempt {
    pub tenant: TenantId,
    pub agent_key: String,
    pub number: i32,
    pub token: LeaseToken,
    /// Time from the claim until it was taken back.
    pub held_for: Duration,
    /// Topmost execution of the tree.
    pub root: ExecutionId,
    pub session: Option<SessionId>,
    pub traceparent: Option<String>,
}

/// Head of one queue, counted up to a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueHead {
    pub queue: String,
    /// Runnable executions, counted up to the limit.
    pub runnable: i64,
    /// Age of the oldest execution counted; they are counted in no order.
    pub oldest: Duration,
}

impl Store {
    /// Declares workers dead whose lease expired, at most sixteen at a time. Declares none before the server has
    /// been up, and some worker has renewed without a gap, for a whole `lease` (core-rules 4).
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn bury_expired_workers(&self, lease: Duration) -> Result<Vec<WorkerId>, StoreError> {
        let rows = sqlx::query_scalar!(r#"select longhaul_bury($1, 16) as "id!""#, lease.as_secs_f64())
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(WorkerId).collect())
    }

    /// Takes back up to `limit` executions that dead workers hold.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn reap(&self, limit: i64) -> Result<Vec<Reaped>, StoreError> {
        let rows = sqlx::query_file!("src/sql/reap.sql", limit).fetch_all(&self.pool).await?;
        let reaped = rows.into_iter().map(|row| Reaped {
            id: ExecutionId(row.id),
            queue: row.queue,
            worker: WorkerId(row.worker_id),
            failure_code: row.failure_code,
            slot_keys: row.slot_keys.unwrap_or_default(),
            attempt: LostAttempt {
                tenant: TenantId(row.tenant_id),
                agent_key: row.agent_key,
                number: row.attempt,
                token: LeaseToken(row.lease_token),
                held_for: Duration::try_from_secs_f64(row.held_for).unwrap_or_default(),
                root: ExecutionId(row.root_id),
                session: row.session_id.map(SessionId),
                traceparent: row.traceparent,
            },
        });
        let reaped: Vec<Reaped> = reaped.collect();
        metrics::executions_reaped(reaped.len() as u64);
        // `crash_loop`, and those whose worker died before it carried out their cancel.
        let ended = reaped.iter().filter(|one| one.failure_code.is_some());
        metrics::executions_ended(Some(FailureClass::Permanent), ended.count());
        Ok(reaped)
    }

    /// Marks the dead workers that hold nothing any more, so that [`Self::reap`] does not look at them again. A dead
    /// worker claims nothing: its row was locked when it died.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn mark_emptied(&self) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            update workers w set emptied_at = clock_timestamp()
            where w.id in (
                select d.id from workers d where d.dead_at is not null and d.emptied_at is null
                    and not exists (select from executions e where e.worker_id = d.id)
            )
            "#
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Makes runnable up to `limit` executions whose wait is over, or ends them if their deadline has passed.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_due(&self, limit: i64) -> Result<Vec<Runnable>, StoreError> {
        let due = sqlx::query_scalar!(
            r#"
            select execution_id from parked p
            where wait_until <= longhaul_now() and not exists (
                select from set_aside s
                where s.what = $2 and s.subject = p.execution_id::text and s.next_at > longhaul_now()
            )
            order by wait_until limit $1
            "#,
            limit,
            WAKE_DUE,
        )
        .fetch_all(&self.pool)
        .await?;
        self.each_id_apart(WAKE_DUE, &due, |ids| self.wake_those(ids)).await
    }

    async fn wake_those(&self, ids: Vec<Uuid>) -> Result<Vec<Runnable>, StoreError> {
        let rows = sqlx::query_file!("src/sql/wake_due.sql", &ids).fetch_all(&self.pool).await?;
        metrics::executions_ended(Some(FailureClass::Permanent), rows.iter().filter(|row| row.is_over).count());
        let awake = rows.into_iter().filter(|row| !row.is_over);
        Ok(awake.map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }

    /// Ends up to `limit` executions past their deadline that no worker holds.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn end_overdue(&self, limit: i64) -> Result<Vec<ExecutionId>, StoreError> {
        let due = sqlx::query_scalar!(
            r#"
            select execution_id from deadlines d
            where deadline_at <= longhaul_now() and not exists (
                select from set_aside s
                where s.what = $2 and s.subject = d.execution_id::text and s.next_at > longhaul_now()
            )
            order by deadline_at limit $1
            "#,
            limit,
            END_OVERDUE,
        )
        .fetch_all(&self.pool)
        .await?;
        self.each_id_apart(END_OVERDUE, &due, |ids| self.end_late(ids, Vec::new(), Duration::ZERO)).await
    }

    /// Ends those of these held executions whose `active_until` passed by more than `grace`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn end_held(&self, ids: &[ExecutionId], grace: Duration) -> Result<Vec<ExecutionId>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        self.each_id_apart(END_OVERDUE, &ids, |ids| self.end_late(Vec::new(), ids, grace)).await
    }

    /// Up to `limit` held executions whose `active_until` passed by more than `grace`, of workers whose renewals
    /// have been steady for `steady`: after an outage a worker first gets time to write its results.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn neglected(
        &self,
        limit: i64,
        grace: Duration,
        steady: Duration,
    ) -> Result<Vec<ExecutionId>, StoreError> {
        let ids = sqlx::query_scalar!(
            r#"
            select held.id
            from live_workers w cross join lateral (
                select e.id from executions e
                where e.worker_id = w.id and e.active_until < longhaul_now() - $2::float8 * interval '1 second'
                limit $1
            ) held
            where w.expires_at > clock_timestamp()
                and w.steady_since < clock_timestamp() - $3::float8 * interval '1 second'
            limit $1
            "#,
            limit,
            grace.as_secs_f64(),
            steady.as_secs_f64(),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ids.into_iter().map(ExecutionId).collect())
    }

    async fn end_late(
        &self,
        free: Vec<Uuid>,
        held: Vec<Uuid>,
        grace: Duration,
    ) -> Result<Vec<ExecutionId>, StoreError> {
        let rows = sqlx::query_file!("src/sql/end_overdue.sql", &free, &held, grace.as_secs_f64())
            .fetch_all(&self.pool)
            .await?;
        metrics::executions_ended(Some(FailureClass::Permanent), rows.len());
        Ok(rows.into_iter().map(|row| ExecutionId(row.id)).collect())
    }

    /// Head of each queue that has runnable executions, each counted up to `cap`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn queue_heads(&self, cap: i64) -> Result<Vec<QueueHead>, StoreError> {
        let heads = sqlx::query_as!(
            QueueHead,
            r#"
            with recursive queues as (
                (select queue from executions where wait_reason = 'worker' order by queue limit 1)
                union all
                select (
                    select queue from executions
                    where wait_reason = 'worker' and queue > queues.queue order by queue limit 1
                )
                from queues where queues.queue is not null
            )
            -- By the index alone: an id begins with the time of its submit.
            select queues.queue as "queue!", head.runnable as "runnable!",
                coalesce(extract(epoch from longhaul_now()) - head.oldest, 0)::float8 as "oldest!: Seconds"
            from queues
            cross join lateral (
                select count(*) as runnable,
                    min(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint) / 1000.0 as oldest
                from (select id from executions where wait_reason = 'worker' and queue = queues.queue limit $1)
                    as counted
            ) as head
            where queues.queue is not null
            "#,
            cap,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(heads)
    }

    /// Pairs of queue and serve key that have runnable executions and no live worker.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn unserved(&self) -> Result<Vec<(String, String)>, StoreError> {
        let rows = sqlx::query!(
            r#"
            with recursive pairs as (
                (select queue, serve_key from executions where wait_reason = 'worker' order by queue, serve_key limit 1)
                union all
                select next.queue, next.serve_key from pairs cross join lateral (
                    select queue, serve_key from executions
                    where wait_reason = 'worker' and (queue, serve_key) > (pairs.queue, pairs.serve_key)
                    order by queue, serve_key limit 1
                ) as next
            )
            select queue as "queue!", serve_key as "serve_key!" from pairs
            where not exists (
                select from workers w
                where w.dead_at is null and pairs.queue = any (w.queues) and pairs.serve_key = any (w.serves)
            )
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.queue, row.serve_key)).collect())
    }

    /// Parks with `no_worker` up to `limit` executions of a pair that no live worker serves and that are older
    /// than `grace`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn park_unserved(
        &self,
        (queue, serve_key): (&str, &str),
        grace: Duration,
        limit: i64,
    ) -> Result<usize, StoreError> {
        let rows = sqlx::query_file!("src/sql/park_unserved.sql", queue, serve_key, grace.as_secs_f64(), limit)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.len())
    }

    /// Makes runnable up to `limit` executions that waited for a worker, once a live one serves them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_served(&self, limit: i64) -> Result<Vec<Runnable>, StoreError> {
        Ok(sqlx::query_file_as!(Runnable, "src/sql/wake_served.sql", limit).fetch_all(&self.pool).await?)
    }

    /// Folds the differences written since the last time into the counts by status, and deletes counts of zero.
    /// One process at a time.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fold_counts(&self, limit: i64) -> Result<(), StoreError> {
        let folded = sqlx::query!(
            r#"
            with mine as materialized (select pg_try_advisory_xact_lock(hashtext('longhaul.fold_counts')) as is_mine),
            chunk as (select ctid from execution_count_changes where (select is_mine from mine) limit $1),
            taken as (
                delete from execution_count_changes where ctid = any (array(select ctid from chunk))
                returning tenant_id, definition_key, agent_key, day, status, n
            )
            insert into execution_counts as c (tenant_id, definition_key, agent_key, day, status, n)
            select tenant_id, definition_key, agent_key, day, status, sum(n) from taken group by 1, 2, 3, 4, 5
            on conflict (tenant_id, definition_key, agent_key, day, status) do update set n = c.n + excluded.n
            returning tenant_id, definition_key, agent_key, day, status::text as "status!", n
            "#,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let empty: Vec<_> = folded.into_iter().filter(|row| row.n == 0).collect();
        if empty.is_empty() {
            return Ok(());
        }
        macro_rules! column {
            ($row:ident => $value:expr) => {
                &empty.iter().map(|$row| $value).collect::<Vec<_>>()
            };
        }
        sqlx::query!(
            r#"
            delete from execution_counts c
            using unnest($1::uuid[], $2::text[], $3::text[], $4::date[], $5::text[])
                as e (tenant_id, definition_key, agent_key, day, status)
            where c.tenant_id = e.tenant_id and c.definition_key = e.definition_key and c.agent_key = e.agent_key
                and c.day = e.day and c.status = e.status::execution_status and c.n = 0
            "#,
            column!(row => row.tenant_id),
            column!(row => row.definition_key.clone()),
            column!(row => row.agent_key.clone()),
            column!(row => row.day),
            column!(row => row.status.clone()),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Makes the history partitions of the coming weeks, and deletes workers that died over an hour ago.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn tidy(&self, weeks_ahead: i32) -> Result<(), StoreError> {
        self.make_partitions(weeks_ahead).await?;
        sqlx::query!(
            r#"
            delete from workers w
            where id in (
                select o.id from workers o
                where o.dead_at < statement_timestamp() - interval '1 hour'
                    and not exists (select from executions e where e.worker_id = o.id)
                order by o.dead_at limit $1
            )
            "#,
            DEAD_WORKERS,
        )
        .execute(&self.pool)
        .await?;
        self.tidy_set_aside().await
    }

    /// Rows in the default partitions, and the age of the oldest snapshot.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn alarms(&self) -> Result<Alarms, StoreError> {
        let row = sqlx::query!(
            r#"
            select
                (select count(*) from (select from attempts_default limit 1000) a)
                + (select count(*) from (select from steps_default limit 1000) s)
                + (select count(*) from (select from events_default limit 1000) e) as "default_rows!",
                coalesce((
                    select max(extract(epoch from clock_timestamp() - xact_start)) from pg_stat_activity
                    where backend_xmin is not null and pid <> pg_backend_pid()
                ), 0)::float8 as "oldest_snapshot!",
                pg_has_role('pg_read_all_stats', 'usage') as "sees_all_sessions!"
            "#
        )
        .fetch_one(&self.pool)
        .await?;
        let oldest_snapshot = Duration::try_from_secs_f64(row.oldest_snapshot).unwrap_or_default();
        let sees_all_sessions = row.sees_all_sessions;
        Ok(Alarms { default_partition_rows: row.default_rows, oldest_snapshot, sees_all_sessions })
    }

    /// Number of executions that wait, for each reason except `worker`. Reads all of them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn waiting(&self) -> Result<Vec<(WaitReason, u64)>, StoreError> {
        let mut counts: Vec<(WaitReason, u64)> =
            WaitReason::ALL.iter().filter(|reason| **reason != WaitReason::Worker).map(|reason| (*reason, 0)).collect();
        let mut part = 0;
        loop {
            let (some, next) = self.waiting_part(part).await?;
            for (reason, number) in &mut counts {
                *number += some.get(reason).copied().unwrap_or_default();
            }
            if next == 0 {
                return Ok(counts);
            }
            part = next;
        }
    }

    /// Number of executions that wait, for each reason, in one part of the table; and the part that comes next, which
    /// is the first after the last.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn waiting_part(&self, part: i64) -> Result<(HashMap<WaitReason, u64>, i64), StoreError> {
        let rows = sqlx::query!(
            r#"
            select wait_reason, count(*) as "n!" from parked
            where ctid >= format('(%s,0)', $1::bigint)::tid and ctid < format('(%s,0)', $1::bigint + $2::bigint)::tid
            group by wait_reason
            "#,
            part,
            PART,
        )
        .fetch_all(&self.pool)
        .await?;
        let counts =
            rows.into_iter().filter_map(|row| Some((WaitReason::parse(&row.wait_reason)?, row.n.unsigned_abs())));
        Ok((counts.collect(), self.next_part("parked", part).await?))
    }

    /// The part of a table after this one; the first, after the last.
    pub(crate) async fn next_part(&self, table: &str, part: i64) -> Result<i64, StoreError> {
        let pages = sqlx::query_scalar!(
            r#"select pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint as "pages!""#,
            table,
        );
        let next = part + PART;
        Ok(if next < pages.fetch_one(&self.pool).await? { next } else { 0 })
    }
}

/// Signs of trouble shown by metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alarms {
    /// Rows that fell outside the partitions made ahead, counted up to a thousand per table.
    pub default_partition_rows: i64,
    /// Age of the oldest snapshot that a session holds; it keeps dead rows from being vacuumed.
    pub oldest_snapshot: Duration,
    /// True if this role may see the snapshots of other roles; otherwise one of those may be older.
    pub sees_all_sessions: bool,
}
