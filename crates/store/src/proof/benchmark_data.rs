//! Inserts rows by the million for `longhaul bench`.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::{Store, StoreError};
use longhaul_domain::{ExecutionId, TenantId};

impl Store {
    /// Fills a new database with `rows` executions of `tenant` in every state, without payloads and histories, to
    /// measure the plans of lists. No worker may run on it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fill_with_executions(&self, tenant: TenantId, rows: i32) -> Result<(), StoreError> {
        let mut connection = self.unhurried().await?;
        sqlx::query_file!("src/sql/fill.sql", tenant.0, rows).execute(&mut connection).await?;
        sqlx::query!(
            r#"
            insert into parked (execution_id, tenant_id, wait_reason, wait_until)
            select id, tenant_id, wait_reason, wait_until from executions where wait_reason = 'retry_backoff'
            "#
        )
        .execute(&mut connection)
        .await?;
        sqlx::query("vacuum analyze executions, parked").execute(&mut connection).await?;
        Ok(())
    }

    /// Makes `copies` of the only execution, which has FINISHED, with its payload and history, to measure the
    /// cost of growth.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fill_with_copies(&self, of: ExecutionId, copies: i32) -> Result<(), StoreError> {
        let mut connection = self.unhurried().await?;
        sqlx::query_file!("src/sql/fill_copies.sql", of.0, copies).execute(&mut connection).await?;
        sqlx::query_file!("src/sql/fill_histories.sql", of.0).execute(&mut connection).await?;
        sqlx::query("vacuum analyze").execute(&mut connection).await?;
        Ok(())
    }

    /// Fills a fresh database for measurements of the sweep: `workers` that live for a day without renewals, and `held`
    /// executions that they hold in equal shares, without payloads and histories. No other worker may claim in it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fill_with_held(&self, tenant: TenantId, workers: i32, held: i32) -> Result<(), StoreError> {
        let mut connection = self.unhurried().await?;
        sqlx::query_file!("src/sql/fill_held.sql", tenant.0, workers, held).execute(&mut connection).await?;
        sqlx::query("vacuum analyze").execute(&mut connection).await?;
        Ok(())
    }

    /// Stores deliveries of a webhook: due now, or else delivered.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fill_with_deliveries(&self, webhook: Uuid, count: i32, are_due: bool) -> Result<(), StoreError> {
        let mut connection = self.unhurried().await?;
        sqlx::query!(
            r#"
            insert into webhook_deliveries (id, endpoint_id, type, occurred_at, next_at, expires_at, delivered_at)
            select longhaul_uuid(), $1, 'webhook.test', t.now, case when $3 then t.now end,
                t.now + interval '72 hours', case when not $3 then t.now end
            from (select longhaul_now() as now) t, generate_series(1, $2)
            "#,
            webhook,
            count,
            are_due,
        )
        .execute(&mut connection)
        .await?;
        sqlx::query("vacuum analyze webhook_deliveries").execute(&mut connection).await?;
        Ok(())
    }

    /// Fills a new database with `rows` rows of each kind that a duty or a search looks for, none of them due. No
    /// worker may run on it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fill_with_not_due(&self, rows: i64) -> Result<(), StoreError> {
        let mut connection = self.unhurried().await?;
        sqlx::query("select set_config('longhaul.rows', $1, false)")
            .bind(rows.to_string())
            .execute(&mut connection)
            .await?;
        sqlx::raw_sql(include_str!("../sql/fill_not_due.sql")).execute(&mut connection).await?;
        sqlx::query("vacuum analyze").execute(&mut connection).await?;
        Ok(())
    }

    /// Buffers of tables and indexes that all ended sessions read, from memory or disk.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn buffers(&self) -> Result<i64, StoreError> {
        let read = sqlx::query_scalar!(
            r#"
            select sum(
                heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
                    + coalesce(toast_blks_read + toast_blks_hit + tidx_blks_read + tidx_blks_hit, 0)
            )::bigint as "n!"
            from pg_statio_user_tables
            "#
        );
        Ok(read.fetch_one(&self.pool).await?)
    }

    /// Number of sessions in this database besides this one.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn other_sessions(&self) -> Result<i64, StoreError> {
        let others = sqlx::query_scalar!(
            r#"
            select count(*) as "n!" from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
            "#
        );
        Ok(others.fetch_one(&self.pool).await?)
    }

    /// An endpoint of webhooks.
    ///
    /// # Errors
    /// There is none, or Postgres is unavailable.
    pub async fn any_endpoint(&self) -> Result<Uuid, StoreError> {
        Ok(sqlx::query_scalar!("select id from webhook_endpoints limit 1").fetch_one(&self.pool).await?)
    }

    /// A connection for statements that take minutes: the pool's timeout is for statements of production.
    pub(crate) async fn unhurried(&self) -> Result<PgConnection, StoreError> {
        Ok(PgConnection::connect_with(&self.options.connect_options()?.options([("statement_timeout", "0")])).await?)
    }
}
