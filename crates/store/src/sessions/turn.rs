//! The turn of a session that was locked when its execution ended: the reaction `session`.

use crate::{
    Store, StoreError,
    ends::{Reaction, Subject, strike_ends},
    fleet::maintenance::Runnable,
};

impl Store {
    /// Gives the turn of an ended execution to its session's next message, which is returned. Changes nothing while
    /// another transaction has the session locked.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn pass_turn(&self, ended: &Subject) -> Result<Option<Runnable>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let is_passed = sqlx::query_scalar!(
            r#"select longhaul_pass_turn(id, session_id) as "is_passed!" from executions where id = $1"#,
            ended.id,
        )
        .fetch_optional(&mut *transaction)
        .await?;
        if is_passed == Some(false) {
            // The next try skips what this one has locked, so the locks go before this returns.
            transaction.rollback().await?;
            return Ok(None);
        }
        let next = sqlx::query_as!(
            Runnable,
            "select next.id, next.queue
             from executions ended
                 join sessions s on s.id = ended.session_id join executions next on next.id = s.running
             where ended.id = $1 and next.wait_reason = 'worker'",
            ended.id,
        )
        .fetch_optional(&mut *transaction)
        .await?;
        if !strike_ends(&mut transaction, Reaction::Session, &ended.rows).await? {
            return Ok(None);
        }
        transaction.commit().await?;
        Ok(next)
    }
}
