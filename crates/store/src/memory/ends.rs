//! Executions that memory takes: the reaction `memory`.

use crate::{
    Store, StoreError,
    ends::{Reaction, Subject, strike_ends},
};

impl Store {
    /// Makes the source of an ended execution due, so that the duty `update memory` takes it now, unless the duty was
    /// there before and its update has not ended. Changes nothing while another transaction has the source locked.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn memory_source_ended(&self, ended: &Subject) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let found = sqlx::query!("select id from memory_sources where id = $1 for no key update skip locked", ended.id)
            .fetch_optional(&mut *transaction)
            .await?;
        let is_there =
            sqlx::query_scalar!(r#"select exists (select from memory_sources where id = $1) as "is!""#, ended.id);
        if found.is_none() && is_there.fetch_one(&mut *transaction).await? {
            return Ok(());
        }
        sqlx::query!(
            "update memory_sources set check_at = longhaul_now()
             where id = $1 and noted > taken and check_at is not null and not exists (
                 select from memory_updates u join executions e on e.id = u.execution_id
                 where u.source_id = $1 and e.finished_at is null
             )",
            ended.id,
        )
        .execute(&mut *transaction)
        .await?;
        if strike_ends(&mut transaction, Reaction::Memory, &ended.rows).await? {
            transaction.commit().await?;
        }
        Ok(())
    }
}
