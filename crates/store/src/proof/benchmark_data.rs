//! Inserts rows by the million for `longhaul bench`.

use sqlx::{Connection, PgConnection};

use crate::{Store, StoreError};
use longhaul_shared::domain::{ExecutionId, TenantId};

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

    /// A connection for statements that take minutes: the pool's timeout is for statements of production.
    pub(crate) async fn unhurried(&self) -> Result<PgConnection, StoreError> {
        Ok(PgConnection::connect_with(&self.options.connect_options()?.options([("statement_timeout", "0")])).await?)
    }
}
