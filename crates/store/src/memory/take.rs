//! Takes the exchanges of a source: one episode each, written once, under the lease of the execution that does so.

use std::collections::HashMap;

use longhaul_domain::{EpisodeId, ExecutionId, LeaseToken, SessionId, TenantId, WorkerId, message::Message};
use serde_json::Value;
use uuid::Uuid;

use super::{
    MAX_EPISODES, MemoryPlace,
    exchange::{Exchange, episode_hash},
};
use crate::{Store, StoreError};

/// Most exchanges that one update takes.
const MAX_EXCHANGES: i64 = 50;
/// Most episodes that one update embeds; the next one embeds others.
const MAX_EMBEDDED: i64 = 500;

/// An episode, as an update reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenEpisode {
    pub id: EpisodeId,
    pub exchange: i32,
    pub content: String,
    pub hash: Vec<u8>,
}

/// A row of the type `memory_exchange`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "memory_exchange")]
struct ExchangeRow {
    execution_id: Uuid,
    number: i32,
    content: String,
    hash: Vec<u8>,
}

/// Exchanges after the last that was taken, the number of the last one looked at, and whether others follow, also those
/// that have not ended.
struct Untaken {
    exchanges: Vec<ExchangeRow>,
    through: i32,
    has_more: bool,
}

impl Store {
    /// Writes the next exchanges of the source of update `execution` as episodes, unless another update did. A repeat
    /// takes no further ones, because the recorded prompt has only those of the first run. Returns the place, if the
    /// source still exists.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; a transcript cannot be read; Postgres is unavailable.
    pub async fn take_exchanges(
        &self,
        (worker, execution, token): (WorkerId, ExecutionId, LeaseToken),
    ) -> Result<Option<MemoryPlace>, StoreError> {
        let source = sqlx::query!(
            r#"
            select s.id, s.tenant_id, s.agent_key, s.scope, s.is_session, s.taken, s.noted,
                exists (select from memory_episodes m where m.written_by = $1) as "has_written!"
            from memory_updates u join memory_sources s on s.id = u.source_id
            where u.execution_id = $1
            "#,
            execution.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(source) = source else { return Ok(None) };
        let place = MemoryPlace { tenant: TenantId(source.tenant_id), agent: source.agent_key, scope: source.scope };
        if source.has_written {
            return Ok(Some(place));
        }
        let untaken = if source.is_session {
            self.untaken_of_session(SessionId(source.id), (source.taken, source.noted)).await?
        } else {
            self.untaken_of_execution(source.id, source.taken).await?
        };
        let written = sqlx::query_file!(
            "src/sql/take_exchanges.sql",
            worker.0,
            execution.0,
            token.0,
            source.id,
            source.taken,
            untaken.through,
            (!untaken.has_more).then_some(source.noted),
            &untaken.exchanges as _,
        )
        .fetch_one(&self.pool)
        .await?;
        if !written.is_held {
            return Err(StoreError::LeaseLost);
        }
        self.forget_oldest(&place, MAX_EPISODES).await?;
        Ok(Some(place))
    }

    /// Episodes that an update wrote and that still exist, in the order of their exchanges.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn taken_episodes(&self, update: ExecutionId) -> Result<Vec<TakenEpisode>, StoreError> {
        let rows = sqlx::query_as!(
            TakenEpisode,
            "select id, exchange, content, hash from memory_episodes where written_by = $1 order by exchange",
            update.0,
        );
        Ok(rows.fetch_all(&self.pool).await?)
    }

    /// Episodes of an update's source without an embedding: those that it wrote, and those of calls of `remember`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn unembedded_episodes(&self, update: ExecutionId) -> Result<Vec<TakenEpisode>, StoreError> {
        let rows = sqlx::query_as!(
            TakenEpisode,
            r#"
            select m.id, m.exchange, m.content, m.hash
            from memory_updates u join memory_episodes m on m.session_id = u.source_id or m.execution_id = u.source_id
            where u.execution_id = $1 and m.embedding_model is null
            order by m.id
            limit $2
            "#,
            update.0,
            MAX_EMBEDDED,
        );
        Ok(rows.fetch_all(&self.pool).await?)
    }

    async fn untaken_of_execution(&self, id: Uuid, taken: i32) -> Result<Untaken, StoreError> {
        let row = sqlx::query!(
            r#"
            select p.input::text as "input!", p.output::text
            from executions e join execution_payloads p on p.execution_id = e.id
            where e.id = $1 and e.finished_at is not null and p.erased_at is null and $2 = 0
            "#,
            id,
            taken,
        )
        .fetch_optional(&self.pool)
        .await?;
        let content = row.and_then(|row| {
            let input: Value = serde_json::from_str(&row.input).unwrap_or_default();
            let output: Option<Value> = row.output.and_then(|output| serde_json::from_str(&output).ok());
            Exchange::of_execution(&input, output.as_ref()).content()
        });
        let exchanges = content.map(|content| ExchangeRow::new(id, 1, content)).into_iter().collect();
        Ok(Untaken { exchanges, through: 1, has_more: false })
    }

    async fn untaken_of_session(&self, session: SessionId, (taken, noted): (i32, i32)) -> Result<Untaken, StoreError> {
        self.fold_session(session).await?;
        let turns = sqlx::query!(
            r#"
            select number, execution_id, state, is_rolled_back from session_turns
            where session_id = $1 and number > $2 and number <= $3 order by number limit $4
            "#,
            session.0,
            taken,
            noted,
            MAX_EXCHANGES + 1,
        )
        .fetch_all(&self.pool)
        .await?;
        let found = turns.len();
        let ended = turns.into_iter().take(MAX_EXCHANGES as usize).take_while(|turn| turn.state == "ended");
        let turns: Vec<_> = ended.collect();
        let has_more = turns.len() < found;
        let through = turns.last().map_or(taken, |turn| turn.number);
        let said = turns.iter().filter(|turn| !turn.is_rolled_back);
        let said: Vec<(Uuid, i32)> = said.map(|turn| (turn.execution_id, turn.number)).collect();
        let mut exchanges: HashMap<Uuid, Exchange> = HashMap::new();
        for message in self.messages_of(session, said.iter().map(|(id, _)| ExecutionId(*id)).collect()).await? {
            if message.replaces.is_none() {
                let read = Message::from_bytes(&message.bytes);
                let read = read.map_err(|error| StoreError::Corrupt(format!("a message of a session: {error}")))?;
                exchanges.entry(message.execution.0).or_default().add(&read);
            }
        }
        let content = |(id, number): (Uuid, i32)| Some(ExchangeRow::new(id, number, exchanges.get(&id)?.content()?));
        Ok(Untaken { exchanges: said.into_iter().filter_map(content).collect(), through, has_more })
    }
}

impl ExchangeRow {
    fn new(execution_id: Uuid, number: i32, content: String) -> Self {
        Self { execution_id, number, hash: episode_hash(&content).to_vec(), content }
    }
}
