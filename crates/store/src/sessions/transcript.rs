//! The transcript of a session: read, and extended by what its ended executions said.

use longhaul_domain::{ExecutionId, SessionId, input_parts};
use uuid::Uuid;

use super::{
    erasure::tombstone,
    fold::{Entry, Fold, SessionMessage, Turn},
};
use crate::{
    Store, StoreError,
    columns::Packed,
    files::StoredFile,
    history::{body, journal::Loaded},
};

/// Bytes of a user's message without a text.
const EMPTY: &[u8] = br#"{"role":"user","parts":[""]}"#;

/// A row of the type `transcript_message`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "transcript_message")]
struct MessageRow {
    seq: i32,
    execution_id: Uuid,
    body: Vec<u8>,
    replaces_first: Option<i32>,
    replaces_last: Option<i32>,
    is_interrupted: bool,
}

impl From<&SessionMessage> for MessageRow {
    fn from(of: &SessionMessage) -> Self {
        let (replaces_first, replaces_last) = of.replaces.unzip();
        Self {
            seq: of.seq,
            execution_id: of.execution.0,
            body: body::encode(&of.bytes),
            replaces_first,
            replaces_last,
            is_interrupted: of.is_interrupted,
        }
    }
}

/// State of a transcript when a fold read it: the last turn that was part of it, and the number of erasures.
#[derive(Clone, Copy)]
struct Folded {
    through: i32,
    erasures: i32,
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
        let messages = sqlx::query_as!(
            SessionMessage,
            r#"
            select seq, execution_id as "execution: _", body as "bytes: Packed",
                case when replaces_last is not null then (replaces_first, replaces_last) end as "replaces: (i32, i32)",
                is_interrupted, is_erased
            from session_messages where session_id = $1 and seq > $2 and seq <= $3 order by seq limit $4
            "#,
            session.0,
            after,
            through,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(messages)
    }

    /// Messages of these executions, in order.
    ///
    /// # Errors
    /// Postgres is unavailable, or a message cannot be read.
    pub(crate) async fn messages_of(
        &self,
        session: SessionId,
        executions: Vec<ExecutionId>,
    ) -> Result<Vec<SessionMessage>, StoreError> {
        let ids: Vec<Uuid> = executions.into_iter().map(|id| id.0).collect();
        let messages = sqlx::query_as!(
            SessionMessage,
            r#"
            select seq, execution_id as "execution: _", body as "bytes: Packed",
                case when replaces_last is not null then (replaces_first, replaces_last) end as "replaces: (i32, i32)",
                is_interrupted, is_erased
            from session_messages where session_id = $1 and execution_id = any ($2) order by seq
            "#,
            session.0,
            &ids,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(messages)
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
            let row = sqlx::query!("select folded, last_seq, erasures from sessions where id = $1", session.0)
                .fetch_optional(&self.pool)
                .await?;
            let Some(row) = row else { return Ok(0) };
            let turns = sqlx::query!(
                r#"
                select t.number, t.execution_id, t.state, t.is_rolled_back, t.is_interrupted, t.holds_erased,
                    p.input::text as "input!", p.erased_at is not null as "is_erased!",
                    e.failure_code is not distinct from 'cancelled' as "is_cancelled!"
                from session_turns t
                join execution_payloads p on p.execution_id = t.execution_id
                join executions e on e.id = t.execution_id
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
                let input = serde_json::from_str(&turn.input).unwrap_or_default();
                let files = if turn.is_erased || input_parts::files(&input).is_empty() {
                    Vec::new()
                } else {
                    self.attached_files(id).await?.iter().map(StoredFile::reference).collect()
                };
                let turn = Turn {
                    execution: id,
                    input,
                    files,
                    is_rolled_back: turn.is_rolled_back,
                    is_cancelled: turn.is_cancelled,
                    is_interrupted: turn.is_interrupted,
                    is_erased: turn.is_erased,
                    holds_erased: turn.holds_erased,
                };
                fold.add(&turn, &journal.steps)?;
            }
            let (last_seq, added) = fold.finish();
            let read = Folded { through: row.folded, erasures: row.erasures };
            self.write_fold(session, read, (last.number, last_seq), &added).await?;
        }
    }

    /// Appends `added` to a transcript as it was `read`; then the turns through `to` are part of it. Does nothing if
    /// another fold was faster, or a message was erased meanwhile.
    async fn write_fold(
        &self,
        session: SessionId,
        read: Folded,
        (to, last_seq): (i32, i32),
        added: &[SessionMessage],
    ) -> Result<(), StoreError> {
        let erased: Vec<i32> = added.iter().filter(|message| message.is_erased).map(|message| message.seq).collect();
        sqlx::query!(
            r#"
            with folded as (
                update sessions set folded = $3, last_seq = $4, bytes = bytes + $5
                where id = $1 and folded = $2 and erasures = $7
                returning id
            )
            insert into session_messages (
                session_id, seq, execution_id, body, replaces_first, replaces_last, is_interrupted, is_erased
            )
            select folded.id, added.*, added.seq = any ($8)
            from folded, unnest($6::transcript_message[]) as added
            "#,
            session.0,
            read.through,
            to,
            last_seq,
            added.iter().map(|message| message.bytes.len() as i64).sum::<i64>(),
            added.iter().map(MessageRow::from).collect::<Vec<_>>() as _,
            read.erasures,
            &erased,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    async fn session_entries(&self, session: SessionId, through: i32) -> Result<Vec<Entry>, StoreError> {
        let mut context = Vec::new();
        for message in self.session_messages(session, 0, through, i64::from(i32::MAX)).await? {
            // The release before made this of a message that was erased before its start; models refuse it.
            let bytes = if message.bytes == EMPTY { tombstone(None)? } else { message.bytes };
            Entry { seq: message.seq, bytes }.join(&mut context, message.replaces);
        }
        Ok(context)
    }
}
