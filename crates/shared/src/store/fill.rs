//! Rows by the million for `longhaul bench`, by straight inserts.

use sqlx::{Connection, PgConnection};

use super::{Store, StoreError};
use crate::domain::TenantId;

impl Store {
    /// Fills a fresh database with `rows` executions of `tenant` in every state, without payloads and histories: for the plans of lists. No worker
    /// may run on them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fill_with_executions(&self, tenant: TenantId, rows: i32) -> Result<(), StoreError> {
        let mut connection = self.unhurried().await?;
        sqlx::query_file!("src/store/sql/fill.sql", tenant.0, rows).execute(&mut connection).await?;
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

    /// Fills a fresh database with `rows` executions of `tenant` that have FINISHED within the last six days, each with the payload and the
    /// history of one turn: for what growth costs.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fill_with_finished(&self, tenant: TenantId, rows: i32) -> Result<(), StoreError> {
        let mut connection = self.unhurried().await?;
        sqlx::query_file!("src/store/sql/fill_finished.sql", tenant.0, rows).execute(&mut connection).await?;
        sqlx::query_file!("src/store/sql/fill_histories.sql").execute(&mut connection).await?;
        sqlx::query("vacuum analyze").execute(&mut connection).await?;
        Ok(())
    }

    /// A connection for statements that take minutes: the pool's limit is for statements of production.
    pub(super) async fn unhurried(&self) -> Result<PgConnection, StoreError> {
        Ok(PgConnection::connect_with(&self.options.connect_options()?.options([("statement_timeout", "0")])).await?)
    }
}
