//! Branches of a session: its last answer is continued, and a request that follows another begins a branch.

use longhaul_domain::{ExecutionId, SessionId};

use crate::{Store, StoreError};

impl Store {
    /// True if the execution answers the last message of the session: a request that follows it continues the session,
    /// and one that follows another begins a branch.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn is_last_of_session(&self, session: SessionId, execution: ExecutionId) -> Result<bool, StoreError> {
        let is_last = sqlx::query_scalar!(
            r#"
            select exists (
                select from session_turns t join sessions s on s.id = t.session_id
                where t.session_id = $1 and t.execution_id = $2 and t.number = s.turns
            ) as "is_last!"
            "#,
            session.0,
            execution.0,
        );
        Ok(is_last.fetch_one(&self.pool).await?)
    }

    /// The transcript of a session as the model sees it, through the last message of `execution`; exact bytes.
    /// `None` if the execution has not ended, or answers no message of the session.
    ///
    /// # Errors
    /// Postgres is unavailable, or a message cannot be read.
    pub async fn transcript_through(
        &self,
        session: SessionId,
        execution: ExecutionId,
    ) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        self.fold_session(session).await?;
        // One that was withdrawn has no message of its own.
        let through = sqlx::query_scalar!(
            r#"
            select coalesce((
                select max(m.seq)
                from session_messages m join session_turns before on before.execution_id = m.execution_id
                where m.session_id = t.session_id and before.session_id = t.session_id and before.number <= t.number
            ), 0) as "through!"
            from session_turns t join sessions s on s.id = t.session_id
            where t.session_id = $1 and t.execution_id = $2 and t.number <= s.folded
            "#,
            session.0,
            execution.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        match through {
            Some(through) => Ok(Some(self.session_context(session, through).await?)),
            None => Ok(None),
        }
    }
}
