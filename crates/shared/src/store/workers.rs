//! The lease of a worker process: one id per start, a row that its writes are fenced on, and a heartbeat, renewed by its own connection.
//!
//! A worker id dies once. Renewal needs the row alive and the lease unexpired, so a process that was paused beyond its lease cannot come
//! back under its old id, and the reaper's `for update` waits for every write that still holds `for key share`.

use std::time::Duration;

use serde::Serialize;
use sqlx::{PgConnection, PgExecutor};

use super::{Store, StoreError, StoreOptions};
use crate::domain::{ExecutionId, LeaseToken, WorkerId};

/// What a worker publishes about itself.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerRecord {
    /// Its identity, for this start only.
    pub id: WorkerId,
    /// Host name.
    pub host: String,
    /// Process id on that host.
    pub pid: i32,
    /// Which build of the binary it is.
    pub build: String,
    /// The queues it takes from.
    pub queues: Vec<String>,
    /// The serve keys it satisfies.
    pub serves: Vec<String>,
    /// How many executions it holds at most.
    pub concurrency: i32,
}

/// One lease the database says a worker holds.
#[derive(Debug, Clone, Copy)]
pub struct HeldLease {
    /// The execution.
    pub id: ExecutionId,
    /// Its token.
    pub token: LeaseToken,
    /// Its attempt.
    pub attempt: i32,
    /// Whether its cancellation was requested.
    pub cancel_requested: bool,
    /// Whether the claim is older than the grace that a reply may take.
    pub is_settled: bool,
    /// Time since it should have ended.
    pub overdue: Duration,
}

impl Store {
    /// Registers a worker with a lease of `lease` from now.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn register_worker(&self, worker: &WorkerRecord, lease: Duration) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            with worker as (
                insert into workers (id, host, pid, build, queues, serves, concurrency) values ($1, $2, $3, $4, $5, $6, $7)
                returning id
            )
            insert into worker_heartbeats (worker_id, expires_at)
            select id, clock_timestamp() + $8 * interval '1 second' from worker
            "#,
            worker.id.0,
            worker.host,
            worker.pid,
            worker.build,
            &worker.queues,
            &worker.serves,
            worker.concurrency,
            lease.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Publishes the serve keys a worker satisfies.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn publish_serves(&self, id: WorkerId, serves: &[String]) -> Result<(), StoreError> {
        sqlx::query!("update workers set serves = $2 where id = $1 and dead_at is null", id.0, serves)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Ends a worker's identity; what it still holds is taken back by the reapers.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn retire_worker(&self, id: WorkerId) -> Result<(), StoreError> {
        retire(&self.pool, id).await
    }

    /// The leases a worker holds according to the database. A claim is settled after `grace`: its reply must have arrived.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn leases_of(&self, id: WorkerId, grace: Duration) -> Result<Vec<HeldLease>, StoreError> {
        let mut connection = self.commits.lend().await?;
        let rows = sqlx::query!(
            r#"
            select id, lease_token as "token!", attempt, cancel_requested_at is not null as "cancel_requested!",
                claimed_at < longhaul_now() - $2 * interval '1 second' as "is_settled!",
                coalesce(extract(epoch from longhaul_now() - active_until), 0)::float8 as "overdue!"
            from executions where worker_id = $1
            "#,
            id.0,
            grace.as_secs_f64(),
        )
        .fetch_all(&mut *connection)
        .await;
        Ok(connection
            .back(rows)?
            .into_iter()
            .map(|row| HeldLease {
                id: ExecutionId(row.id),
                token: LeaseToken(row.token),
                attempt: row.attempt,
                cancel_requested: row.cancel_requested,
                is_settled: row.is_settled,
                overdue: Duration::try_from_secs_f64(row.overdue).unwrap_or_default(),
            })
            .collect())
    }

    /// The requirements behind every serve key that any execution was submitted with.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn serve_keys(&self) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        let rows = sqlx::query!("select key, requirements from serve_keys").fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|row| (row.key, row.requirements)).collect())
    }

    /// Number of live workers.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn count_live_workers(&self) -> Result<u32, StoreError> {
        let count = sqlx::query_scalar!(
            r#"select count(*) as "count!" from live_workers where expires_at > clock_timestamp()"#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// The live workers.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn live_workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select id as "id!", host as "host!", pid as "pid!", build as "build!", queues as "queues!", serves as "serves!",
                concurrency as "concurrency!"
            from live_workers where expires_at > clock_timestamp() order by id
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| WorkerRecord {
                id: WorkerId(row.id),
                host: row.host,
                pid: row.pid,
                build: row.build,
                queues: row.queues,
                serves: row.serves,
                concurrency: row.concurrency,
            })
            .collect())
    }
}

/// Declares one dead. Like whoever buries it, it waits for what the worker is writing (core-rules 2).
async fn retire(connection: impl PgExecutor<'_>, id: WorkerId) -> Result<(), StoreError> {
    sqlx::query!("select longhaul_retire($1) as done", id.0).fetch_one(connection).await?;
    Ok(())
}

/// The connection that renews a worker's lease: its own, so that neither the pool nor a busy executor can starve it.
#[derive(Debug)]
pub struct HeartbeatConnection {
    options: StoreOptions,
    connection: Option<PgConnection>,
}

/// What a renewal came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs on.
    Renewed,
    /// The id is dead: everything it holds is lost.
    Dead,
}

impl HeartbeatConnection {
    /// Connects at the first renewal.
    #[must_use]
    pub fn new(options: StoreOptions) -> Self {
        Self { options, connection: None }
    }

    /// Extends the lease to `lease` from now, unless the id is dead, and publishes the memory of the process. A lease that ran out and that nobody took
    /// is renewed only when that was the server's doing: it was down, or this process `was_awake` and had no answer (core-rules 4). Who slept through
    /// its lease is dead from here on, for everybody (core-rules 2). Not durable on purpose: a renewal lost with the server's memory is followed
    /// by another two seconds later.
    ///
    /// # Errors
    /// Postgres is unavailable; the connection is made anew at the next call.
    pub async fn renew(
        &mut self,
        id: WorkerId,
        lease: Duration,
        memory_bytes: Option<i64>,
        was_awake: bool,
    ) -> Result<Renewal, StoreError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let session = self.options.session([("synchronous_commit", "off")])?;
                session.open().await.map_err(StoreError::connecting)?
            }
        };
        let renewed = sqlx::query!(
            r#"
            with me as materialized (
                -- Against burials, which take this row before they look at the heartbeat.
                select id from workers where id = $1 and dead_at is null for key share
            ),
            newest as materialized (
                select h.ctid as place from me cross join lateral (
                    select ctid from worker_heartbeats where worker_id = me.id order by expires_at desc limit 1
                ) h
            )
            update worker_heartbeats
            set expires_at = clock_timestamp() + $2 * interval '1 second', memory_bytes = coalesce($3, memory_bytes),
                -- Twice in a lease is the least that goes for no gap.
                steady_since = case
                    when clock_timestamp() < expires_at - $2 / 2 * interval '1 second' then steady_since else clock_timestamp()
                end
            where ctid = (select place from newest) and (
                expires_at > clock_timestamp() or $4
                or pg_postmaster_start_time() > expires_at - $2 * interval '1 second'
            )
            "#,
            id.0,
            lease.as_secs_f64(),
            memory_bytes,
            was_awake,
        )
        .execute(&mut connection)
        .await?;
        if renewed.rows_affected() == 1 {
            self.connection = Some(connection);
            return Ok(Renewal::Renewed);
        }
        retire(&mut connection, id).await?;
        Ok(Renewal::Dead)
    }
}
