//! The transcript of a session: read, and extended by what its ended executions said.

use chrono::{DateTime, Utc};
use longhaul_shared::domain::{ExecutionId, SessionId};
use uuid::Uuid;

use super::fold::{Entry, Fold, Turn};
use crate::{Store, StoreError, body, journal::Loaded};

/// One message of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionMessage {
    /// Number in the session, from 1.
    pub seq: i32,
    /// Execution that said it.
    pub execution: ExecutionId,
    /// Exact bytes (`domain::message`).
    pub bytes: Vec<u8>,
    /// First and last number of the messages that it stands for, if it is a summary.
    pub replaces: Option<(i32, i32)>,
}

impl Store {
    /// Messages of a transcript after `after`, in order of their numbers; at most `limit`, and none beyond `through`.
    /// Summaries follow the messages that they stand for.
    ///
    /// # Errors
    /// Postgres is unavailable, or a message cannot be read.
    pub async fn session_messages(
        &self,
        session: SessionId,
        after: i32,
        through: i32,
        limit: i64,
    ) -> Result<Vec<SessionMessage>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select seq, execution_id, body, replaces_first, replaces_last
            from session_messages where session_id = $1 and seq > $2 and seq <= $3 order by seq limit $4
            "#,
            session.0,
            after,
            through,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let read = rows.into_iter().map(|row| {
            Ok(SessionMessage {
                seq: row.seq,
                execution: ExecutionId(row.execution_id),
                bytes: body::decode(&row.body)?,
                replaces: row.replaces_first.zip(row.replaces_last),
            })
        });
        read.collect()
    }

    /// The transcript as the model sees it, through message `through`: summaries stand in the place of what they
    /// replace.
    ///
    /// # Errors
    /// Postgres is unavailable, or a message cannot be read.
    pub async fn session_context(&self, session: SessionId, through: i32) -> Result<Vec<Vec<u8>>, StoreError> {
        let context = self.session_entries(session, through).await?;
        Ok(context.into_iter().map(|entry| entry.bytes).collect())
    }

    /// Adds to the transcript what the session's ended executions said, in order, and returns the number of its last
    /// message. Stops at the first that has not ended. Repeating it changes nothing.
    ///
    /// # Errors
    /// Postgres is unavailable, or a journal cannot be read.
    pub async fn fold_session(&self, session: SessionId) -> Result<i32, StoreError> {
        // Read without a transaction, which would hold a connection while the reads wait for others. The write applies
        // only to what was read; otherwise another fold was faster, and this one reads again.
        loop {
            let row = sqlx::query!("select folded, last_seq from sessions where id = $1", session.0)
                .fetch_optional(&self.pool)
                .await?;
            let Some(row) = row else { return Ok(0) };
            let turns = sqlx::query!(
                r#"
                select t.number, t.execution_id, t.state, t.is_rolled_back, p.input::text as "input!"
                from session_turns t join execution_payloads p on p.execution_id = t.execution_id
                where t.session_id = $1 and t.number > $2 order by t.number
                "#,
                session.0,
                row.folded,
            )
            .fetch_all(&self.pool)
            .await?;
            let ended = turns.iter().take_while(|turn| turn.state == "ended").count();
            let Some(last) = turns[..ended].last() else { return Ok(row.last_seq) };
            let mut fold = Fold::new(self.session_entries(session, row.last_seq).await?, row.last_seq);
            for turn in &turns[..ended] {
                let id = ExecutionId(turn.execution_id);
                let Loaded::Journal(journal) = self.load_journal(id, u8::MAX).await? else {
                    return Err(StoreError::Corrupt(format!("the journal of {id} is of a newer release")));
                };
                let turn = Turn { execution: id, input: &turn.input, is_rolled_back: turn.is_rolled_back };
                fold.add(&turn, &journal.steps)?;
            }
            let (last_seq, added) = fold.finish();
            self.write_fold(session, (row.folded, last.number), last_seq, &added).await?;
        }
    }

    /// Appends `added` to a transcript of which the turns through `from` are part; then those through `to` are. Does
    /// nothing if another fold was faster.
    async fn write_fold(
        &self,
        session: SessionId,
        (from, to): (i32, i32),
        last_seq: i32,
        added: &[SessionMessage],
    ) -> Result<(), StoreError> {
        let (first, last): (Vec<Option<i32>>, Vec<Option<i32>>) =
            added.iter().map(|message| message.replaces.unzip()).unzip();
        sqlx::query!(
            r#"
            with folded as (
                update sessions set folded = $3, last_seq = $4, bytes = bytes + $5 where id = $1 and folded = $2
                returning id
            )
            insert into session_messages (session_id, seq, execution_id, body, replaces_first, replaces_last)
            select folded.id, added.* from folded, unnest($6::int[], $7::uuid[], $8::bytea[], $9::int[], $10::int[]) as added
            "#,
            session.0,
            from,
            to,
            last_seq,
            added.iter().map(|message| message.bytes.len() as i64).sum::<i64>(),
            &added.iter().map(|message| message.seq).collect::<Vec<_>>(),
            &added.iter().map(|message| message.execution.0).collect::<Vec<Uuid>>(),
            &added.iter().map(|message| body::encode(&message.bytes)).collect::<Vec<_>>(),
            &first as &[Option<i32>],
            &last as &[Option<i32>],
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Folds sessions with an execution that ended before `before` and is no part of the transcript; at most `most`.
    /// Returns true if there was one.
    ///
    /// # Errors
    /// As [`Self::fold_session`].
    pub(crate) async fn fold_sessions_ended_before(
        &self,
        before: DateTime<Utc>,
        most: i64,
    ) -> Result<bool, StoreError> {
        let sessions = sqlx::query_scalar!(
            r#"
            select s.id from sessions s
            where s.folded < s.turns and exists (
                select from session_turns t join executions e on e.id = t.execution_id
                where t.session_id = s.id and t.number = s.folded + 1 and t.state = 'ended' and e.finished_at < $1
            )
            limit $2
            "#,
            before,
            most,
        )
        .fetch_all(&self.pool)
        .await?;
        for session in &sessions {
            self.fold_session(SessionId(*session)).await?;
        }
        Ok(!sessions.is_empty())
    }

    async fn session_entries(&self, session: SessionId, through: i32) -> Result<Vec<Entry>, StoreError> {
        let mut context = Vec::new();
        for message in self.session_messages(session, 0, through, i64::from(i32::MAX)).await? {
            Entry { seq: message.seq, bytes: message.bytes }.join(&mut context, message.replaces);
        }
        Ok(context)
    }
}
