//! The lease of a worker process: one id per start, a fence row for its writes, and a heartbeat row renewed by
//! its own connection.
//!
//! A worker id dies once. Renewal requires a live row and an unexpired lease, so a process paused beyond its
//! lease cannot return under its old id, and the reaper's `for update` waits for every write that still holds
//! `for key share`.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use sqlx::{PgConnection, PgExecutor};

use crate::{Store, StoreError, StoreOptions, columns::Seconds, database::outage::Trouble};
use longhaul_domain::{ExecutionId, LeaseToken, WorkerId};

/// A worker's public record.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerRecord {
    /// Random identity of this start.
    pub id: WorkerId,
    pub host: String,
    /// Process id on the host.
    pub pid: i32,
    /// Build of the binary.
    pub build: String,
    /// Queues it claims from.
    pub queues: Vec<String>,
    /// Serve keys it satisfies.
    pub serves: Vec<String>,
    /// Maximum executions held.
    pub concurrency: i32,
}

/// A lease that a worker holds according to the database.
#[derive(Debug, Clone, Copy)]
pub struct HeldLease {
    pub id: ExecutionId,
    pub token: LeaseToken,
    /// Cancellation was requested.
    pub cancel_requested: bool,
    /// The claim is older than the grace for its reply.
    pub is_settled: bool,
    /// Time since `active_until`; zero before it.
    pub overdue: Duration,
}

/// The names that a live worker lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOffers {
    /// Host and process id.
    pub process: String,
    pub build: String,
    pub offers: Vec<String>,
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
                insert into workers (id, host, pid, build, queues, serves, concurrency)
                values ($1, $2, $3, $4, $5, $6, $7)
                returning id
            )
            insert into worker_heartbeats (worker_id, expires_at, renewed_at)
            select id, clock_timestamp() + $8 * interval '1 second', clock_timestamp() from worker
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

    /// Publishes the names that a worker knows, as `longhaul_domain::Offers` reads them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn publish_offers(&self, id: WorkerId, offers: &[String]) -> Result<(), StoreError> {
        sqlx::query!("update workers set offers = $2 where id = $1", id.0, offers).execute(&self.pool).await?;
        Ok(())
    }

    /// Publishes the serve keys that a worker satisfies.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn publish_serves(&self, id: WorkerId, serves: &[String]) -> Result<(), StoreError> {
        sqlx::query!("update workers set serves = $2 where id = $1 and dead_at is null", id.0, serves)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Ends a worker's identity; reapers take back its executions.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn retire_worker(&self, id: WorkerId) -> Result<(), StoreError> {
        retire(&self.pool, id).await
    }

    /// The leases that a worker holds according to the database. A claim is settled after `grace`: its reply must
    /// have arrived by then.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn leases_of(&self, id: WorkerId, grace: Duration) -> Result<Vec<HeldLease>, StoreError> {
        let mut connection = self.commits.lend().await?;
        let leases = sqlx::query_as!(
            HeldLease,
            r#"
            select id as "id: _", lease_token as "token!: _", cancel_requested_at is not null as "cancel_requested!",
                claimed_at < longhaul_now() - $2 * interval '1 second' as "is_settled!",
                coalesce(extract(epoch from longhaul_now() - active_until), 0)::float8 as "overdue!: Seconds"
            from executions where worker_id = $1
            "#,
            id.0,
            grace.as_secs_f64(),
        )
        .fetch_all(&mut *connection)
        .await;
        Ok(connection.back(leases)?)
    }

    /// The names that the live workers know, each once.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn offers(&self) -> Result<Vec<String>, StoreError> {
        let found = sqlx::query_scalar!(
            r#"
            select distinct offer as "offer!" from workers, unnest(offers) as offer where dead_at is null order by 1
            "#
        );
        Ok(found.fetch_all(&self.pool).await?)
    }

    /// Process, build and listed names of each live worker.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn offers_of_workers(&self) -> Result<Vec<WorkerOffers>, StoreError> {
        let rows = sqlx::query_as!(
            WorkerOffers,
            r#"
            select host || ':' || pid as "process!", build, coalesce(offers, '{}') as "offers!"
            from workers where dead_at is null order by started_at
            "#
        );
        Ok(rows.fetch_all(&self.pool).await?)
    }

    /// The requirements of every submitted serve key.
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
        let workers = sqlx::query_as!(
            WorkerRecord,
            r#"
            select id as "id!", host as "host!", pid as "pid!", build as "build!", queues as "queues!",
                serves as "serves!",
                concurrency as "concurrency!"
            from live_workers where expires_at > clock_timestamp() order by id
            "#
        );
        Ok(workers.fetch_all(&self.pool).await?)
    }
}

/// Declares a worker dead. Waits for the worker's running writes, as the burial does (core-rules 2).
async fn retire(connection: impl PgExecutor<'_>, id: WorkerId) -> Result<(), StoreError> {
    sqlx::query!("select longhaul_retire($1) as done", id.0).fetch_one(connection).await?;
    Ok(())
}

/// Connection that renews a worker's lease: its own, so that neither the pool nor a busy executor can starve it.
#[derive(Debug)]
pub struct HeartbeatConnection {
    options: Arc<StoreOptions>,
    trouble: Trouble,
    connection: Option<PgConnection>,
}

/// Result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    Renewed,
    /// Renewed, and the worker is to claim nothing more.
    Draining,
    /// The id is dead: all its leases are lost.
    Dead,
}

impl HeartbeatConnection {
    /// Connects at the first renewal.
    #[must_use]
    pub fn new(store: &Store) -> Self {
        Self { options: store.options.clone(), trouble: store.trouble.clone(), connection: None }
    }

    /// Extends the lease to `lease` from now and publishes the memory of the process. An expired lease that was
    /// not reaped is renewed only if the server caused the gap: Postgres was down, or this process `was_awake`
    /// without an answer (core-rules 4). Otherwise the process slept through its lease, and the id is declared
    /// dead (core-rules 2). Not durable: a renewal lost in a server crash is followed by the next.
    ///
    /// # Errors
    /// Postgres is unavailable; the next call reconnects.
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
                let session = self.options.session([("synchronous_commit", "off")])?.tells(&self.trouble);
                session.open().await.map_err(StoreError::connecting)?
            }
        };
        let renewed = sqlx::query!(
            r#"
            with me as materialized (
                -- Serialises with the reaper, which locks this row before it reads the heartbeat.
                select id, draining_since from workers where id = $1 and dead_at is null for key share
            ),
            newest as materialized (
                select h.ctid as place from me cross join lateral (
                    select ctid from worker_heartbeats where worker_id = me.id order by expires_at desc limit 1
                ) h
            )
            update worker_heartbeats
            set expires_at = clock_timestamp() + $2 * interval '1 second', renewed_at = clock_timestamp(),
                memory_bytes = coalesce($3, memory_bytes),
                -- A renewal later than half a lease after the one before counts as a gap.
                steady_since = case
                    when clock_timestamp() < expires_at - $2 / 2 * interval '1 second' then steady_since
                        else clock_timestamp()
                end
            where ctid = (select place from newest) and (
                expires_at > clock_timestamp() or $4
                or pg_postmaster_start_time() > expires_at - $2 * interval '1 second'
            )
            returning (select draining_since is not null from me) as "is_draining!"
            "#,
            id.0,
            lease.as_secs_f64(),
            memory_bytes,
            was_awake,
        )
        .fetch_optional(&mut connection)
        .await?;
        if let Some(renewed) = renewed {
            self.connection = Some(connection);
            return Ok(if renewed.is_draining { Renewal::Draining } else { Renewal::Renewed });
        }
        retire(&mut connection, id).await?;
        Ok(Renewal::Dead)
    }
}
