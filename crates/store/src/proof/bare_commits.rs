//! Highest rate of this machine's Postgres for one execution at a time: the yardstick of `longhaul bench`.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::{Store, StoreError, StoreOptions};
use longhaul_domain::{ExecutionId, TenantId};

impl Store {
    /// Runs three durable single-row commits (insert, update, update) per execution for `executions`, shared by
    /// `clients` connections, on a table of its own. Returns the time of all, and the median of a single commit.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn bare_commits(
        options: &StoreOptions,
        clients: u32,
        executions: u32,
    ) -> Result<(Duration, Duration), StoreError> {
        let connect = options.connect_options()?;
        let mut first = PgConnection::connect_with(&connect).await?;
        sqlx::query("create table if not exists bench_floor (id uuid primary key, status text not null, body text)")
            .execute(&mut first)
            .await?;
        // Opening connections is not part of the measurement.
        let mut connections = vec![first];
        for _ in 1..clients {
            connections.push(PgConnection::connect_with(&connect).await?);
        }
        let started = Instant::now();
        let work = connections.into_iter().map(|connection| bare_client(connection, executions / clients));
        let mut commits: Vec<Duration> = Vec::new();
        for client in futures::future::join_all(work).await {
            commits.extend(client?);
        }
        let took = started.elapsed();
        commits.sort_unstable();
        let median = commits.get(commits.len() / 2).copied().unwrap_or_default();
        Ok((took, median))
    }

    /// Median of `commits` durable single-row commits, one each `pause`: the cost when processor and server were
    /// idle before. Needs the table of [`Store::bare_commits`].
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn paced_commit(options: &StoreOptions, pause: Duration, commits: usize) -> Result<Duration, StoreError> {
        let mut connection = PgConnection::connect_with(&options.connect_options()?).await?;
        let mut took = Vec::with_capacity(commits);
        for _ in 0..commits {
            tokio::time::sleep(pause).await;
            let asked = Instant::now();
            sqlx::query("insert into bench_floor (id, status, body) values ($1, 'PENDING', 'input')")
                .bind(Uuid::now_v7())
                .execute(&mut connection)
                .await?;
            took.push(asked.elapsed());
        }
        took.sort_unstable();
        Ok(took.get(commits / 2).copied().unwrap_or_default())
    }
}

async fn bare_client(mut connection: PgConnection, executions: u32) -> Result<Vec<Duration>, StoreError> {
    let mut commits = Vec::new();
    for _ in 0..executions {
        let id = Uuid::now_v7();
        for statement in [
            "insert into bench_floor (id, status, body) values ($1, 'PENDING', 'input')",
            "update bench_floor set status = 'IN_PROGRESS' where id = $1",
            "update bench_floor set status = 'FINISHED', body = 'output' where id = $1",
        ] {
            let asked = Instant::now();
            sqlx::query(statement).bind(id).execute(&mut connection).await?;
            commits.push(asked.elapsed());
        }
    }
    Ok(commits)
}

impl Store {
    /// Numbers of executions that ended FINISHED and FAILED, over all tenants.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn ended_executions(&self) -> Result<(i64, i64), StoreError> {
        let row = sqlx::query!(
            r#"
            select
                coalesce(sum(executions) filter (where status = 'FINISHED'), 0)::bigint as "finished!",
                coalesce(sum(executions) filter (where status = 'FAILED'), 0)::bigint as "failed!"
            from execution_stats
            "#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok((row.finished, row.failed))
    }

    /// Numbers of a tenant's executions created at or after `since`, by state: `FINISHED`, `FAILED <code>`,
    /// otherwise the status and the wait reason.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn standings(&self, tenant: TenantId, since: DateTime<Utc>) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select concat_ws(' ', status::text, coalesce(failure_code, wait_reason)) as "standing!",
                count(*) as "executions!"
            from executions
            where tenant_id = $1 and created_at >= $2
            group by 1
            "#,
            tenant.0,
            since,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.standing, row.executions)).collect())
    }

    /// Cancels up to `limit` open executions of a tenant. Returns the number that were open.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn cancel_open(&self, tenant: TenantId, limit: i64) -> Result<usize, StoreError> {
        let ids = sqlx::query_scalar!(
            "select id from executions where tenant_id = $1 and finished_at is null limit $2",
            tenant.0,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        self.cancel_rows(&ids, Some(tenant), "cancelled by the benchmark").await?;
        Ok(ids.len())
    }

    /// Write-ahead log of the server and commits of this database so far.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn written(&self) -> Result<Written, StoreError> {
        let row = sqlx::query!(
            r#"
            select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint as "wal_bytes!",
                (select xact_commit from pg_stat_database where datname = current_database()) as "commits!"
            "#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Written { wal_bytes: row.wal_bytes, commits: row.commits })
    }

    /// Write-ahead log and transaction ids of the server so far. Both are exact at once, unlike the statistics of
    /// [`Store::written`], which a backend reports once per second.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn log_position(&self) -> Result<LogPosition, StoreError> {
        let row = sqlx::query!(
            r#"
            select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as "wal_bytes!",
                pg_snapshot_xmax(pg_current_snapshot())::text::bigint as "transaction_ids!"
            "#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(LogPosition { wal_bytes: row.wal_bytes, transaction_ids: row.transaction_ids })
    }

    /// Stored bytes of an execution's steps, messages and events, by turn; the first item is what precedes the first
    /// turn. A turn's calls belong to it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn stored_bytes_by_turn(&self, id: ExecutionId) -> Result<Vec<i64>, StoreError> {
        let bytes = sqlx::query_scalar!(
            r#"
            with entries as (
                select count(*) filter (where kind = 'turn') over (order by seq) as turn,
                    octet_length(body) + coalesce(octet_length(preview), 0)
                        + coalesce((select sum(octet_length(bytes)) from unnest(appends) as a (bytes)), 0) as bytes
                from steps where execution_id = $1
                union all
                select count(*) filter (where kind = 'turn') over (order by seq), octet_length(coalesce(data::text, ''))
                from events where execution_id = $1
            )
            select sum(bytes)::bigint as "bytes!" from entries group by turn order by turn
            "#,
            id.0,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(bytes)
    }
}

/// See [`Store::log_position`].
#[derive(Debug, Clone, Copy)]
pub struct LogPosition {
    /// Bytes of write-ahead log.
    pub wal_bytes: i64,
    /// Ids given to transactions. A transaction that only reads takes none.
    pub transaction_ids: i64,
}

/// See [`Store::written`].
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Bytes of write-ahead log.
    pub wal_bytes: i64,
    /// Transactions, including those that only read.
    pub commits: i64,
}

impl Store {
    /// Makes the server write a checkpoint. The log written after it depends on the statements alone, not on
    /// earlier writes, because a page is logged whole when it first changes after a checkpoint.
    ///
    /// # Errors
    /// Postgres is unavailable, or this role may not.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        sqlx::query("checkpoint").execute(&mut self.unhurried().await?).await?;
        Ok(())
    }
}
