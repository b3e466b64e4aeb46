//! Runs of schedules that ended: the reaction `schedule`.

use crate::{
    Store, StoreError,
    ends::{Reaction, Subject, strike_ends},
};

impl Store {
    /// Marks the firing of an execution that ended, so that its schedule may start the next run. Changes nothing while
    /// another transaction has the firing locked.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn scheduled_run_ended(&self, ended: &Subject) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!(
            "with firing as materialized (
                 select schedule_id, tick, kind from schedule_firings where execution_id = $1 and state = 'running'
                 for no key update skip locked
             )
             update schedule_firings f set state = 'ended' from firing
             where f.schedule_id = firing.schedule_id and f.tick = firing.tick and f.kind = firing.kind",
            ended.id,
        )
        .execute(&mut *transaction)
        .await?;
        let is_left = sqlx::query_scalar!(
            r#"
            select exists (select from schedule_firings where execution_id = $1 and state = 'running') as "is_left!"
            "#,
            ended.id,
        );
        if is_left.fetch_one(&mut *transaction).await? {
            return Ok(());
        }
        // Without a firing that runs its schedule is gone, or this was done before.
        if strike_ends(&mut transaction, Reaction::Schedule, &ended.rows).await? {
            transaction.commit().await?;
        }
        Ok(())
    }
}
