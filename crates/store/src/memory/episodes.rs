//! Episodes of a place: remembered by a call, recalled by time, by words and by meaning, changed by callers.

use longhaul_domain::{EpisodeId, ExecutionId, LeaseToken, SessionId, TenantId, WorkerId};
use uuid::Uuid;

use super::{MAX_EPISODES, MemoryPlace, exchange::episode_hash, forget::forget_origins, take::TakenEpisode};
use crate::{
    Store, StoreError,
    catalogue::indexes::vector_text,
    history::journal::{Hash, storable},
};

/// Most calls of one execution that remember.
const MAX_REMEMBERED: i64 = 100;

/// An episode that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundEpisode {
    pub id: EpisodeId,
    pub content: String,
    /// Rank of the words, or distance of the embeddings; 0 for the newest.
    pub score: f64,
}

/// An episode that a call writes.
#[derive(Debug, Clone, Copy)]
pub struct Note<'a> {
    pub place: &'a MemoryPlace,
    pub session: Option<SessionId>,
    pub call_key: &'a Hash,
    /// 1 to 10,000 characters.
    pub content: &'a str,
}

/// A row of the type `memory_note`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "memory_note")]
struct NoteRow {
    tenant_id: Uuid,
    agent_key: String,
    scope: String,
    session_id: Option<Uuid>,
    call_key: Vec<u8>,
    content: String,
    hash: Vec<u8>,
}

impl From<&Note<'_>> for NoteRow {
    fn from(of: &Note<'_>) -> Self {
        let content = storable(of.content);
        Self {
            tenant_id: of.place.tenant.0,
            agent_key: of.place.agent.clone(),
            scope: of.place.scope.clone(),
            session_id: of.session.map(|session| session.0),
            call_key: of.call_key.to_vec(),
            hash: episode_hash(&content).to_vec(),
            content,
        }
    }
}

/// Result of a call that remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// The episode was written, by this call or by an earlier run of it.
    Written,
    /// The execution has remembered `MAX_REMEMBERED` times.
    TooMany,
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The episode has this version now.
    Done(i32),
    /// Its hash is another than the caller read.
    Differs(Vec<u8>),
    NotFound,
}

impl Store {
    /// Writes an episode for a call, once, under the lease of its execution.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; Postgres refused the text or is unavailable.
    pub async fn remember(
        &self,
        (worker, execution, token): (WorkerId, ExecutionId, LeaseToken),
        note: &Note<'_>,
    ) -> Result<Remembered, StoreError> {
        let row = sqlx::query_file!(
            "src/sql/remember.sql",
            worker.0,
            execution.0,
            token.0,
            NoteRow::from(note) as _,
            MAX_REMEMBERED,
        )
        .fetch_one(&self.pool)
        .await?;
        if !row.is_held {
            return Err(StoreError::LeaseLost);
        }
        if !row.has_room {
            return Ok(Remembered::TooMany);
        }
        self.forget_oldest(note.place, MAX_EPISODES).await?;
        Ok(Remembered::Written)
    }

    /// The newest episodes of a place, the newest first.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn recent_episodes(&self, place: &MemoryPlace, most: i64) -> Result<Vec<FoundEpisode>, StoreError> {
        let found = sqlx::query_as!(
            FoundEpisode,
            r#"
            select id, content, 0::float8 as "score!" from memory_episodes
            where tenant_id = $1 and agent_key = $2 and scope = $3
            order by created_at desc, exchange desc limit $4
            "#,
            place.tenant.0,
            place.agent,
            place.scope,
            most,
        );
        Ok(found.fetch_all(&self.pool).await?)
    }

    /// Episodes of a place that have any of these words, those of the highest rank first.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn matching_episodes(
        &self,
        place: &MemoryPlace,
        words: &str,
        most: u32,
    ) -> Result<Vec<FoundEpisode>, StoreError> {
        let found = sqlx::query_as!(
            FoundEpisode,
            r#"
            with query as materialized (
                select longhaul_any_word($4) as q
            )
            select m.id, m.content, ts_rank(m.words, query.q, 1)::float8 as "score!"
            from query join memory_episodes m on m.words @@ query.q
            where m.tenant_id = $1 and m.agent_key = $2 and m.scope = $3
            order by "score!" desc, m.id
            limit $5
            "#,
            place.tenant.0,
            place.agent,
            place.scope,
            storable(words),
            i64::from(most),
        );
        Ok(found.fetch_all(&self.pool).await?)
    }

    /// Returns true if an episode of a place has an embedding by `model`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn has_embeddings(&self, place: &MemoryPlace, model: &str) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(
            r#"
            select exists (
                select from memory_episodes
                where tenant_id = $1 and agent_key = $2 and scope = $3 and embedding_model = $4
            ) as "found!"
            "#,
            place.tenant.0,
            place.agent,
            place.scope,
            model,
        );
        Ok(found.fetch_one(&self.pool).await?)
    }

    /// Episodes of a place nearest to an embedding by `model`, the nearest first. None without pgvector.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn nearest_episodes(
        &self,
        place: &MemoryPlace,
        (model, vector): (&str, &[f64]),
        most: u32,
    ) -> Result<Vec<FoundEpisode>, StoreError> {
        let found = sqlx::query_as!(
            FoundEpisode,
            r#"
            select id as "id!", content as "content!", distance as "score!"
            from longhaul_nearest_episodes($1, $2, $3, $4, $5, $6)
            "#,
            place.tenant.0,
            place.agent,
            place.scope,
            model,
            vector_text(vector),
            i32::try_from(most).unwrap_or(i32::MAX),
        );
        Ok(found.fetch_all(&self.pool).await?)
    }

    /// Stores embeddings of episodes whose contents are unchanged. Returns false without pgvector.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn embed_episodes(&self, model: &str, embedded: &[(&TakenEpisode, &[f64])]) -> Result<bool, StoreError> {
        let ids: Vec<Uuid> = embedded.iter().map(|(episode, _)| episode.id.0).collect();
        let hashes: Vec<Vec<u8>> = embedded.iter().map(|(episode, _)| episode.hash.clone()).collect();
        let vectors: Vec<String> = embedded.iter().map(|(_, vector)| vector_text(vector)).collect();
        let stored = sqlx::query_scalar!(
            r#"select longhaul_embed_episodes($1, $2, $3, $4) as "stored!""#,
            &ids,
            &hashes,
            model,
            &vectors,
        );
        Ok(stored.fetch_one(&self.pool).await?)
    }

    /// Notes that the prompts of a session, or of an execution outside sessions, hold these episodes. Returns false if
    /// one of them was forgotten meanwhile.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn note_recalls(
        &self,
        episodes: &[EpisodeId],
        execution: ExecutionId,
        session: Option<SessionId>,
    ) -> Result<bool, StoreError> {
        let known = sqlx::query_scalar!(
            r#"
            with known as materialized (
                -- One that is being forgotten is waited for.
                select m.id from memory_episodes m where m.id = any ($1) order by m.id for key share
            ),
            noted as (
                insert into memory_recalls (episode_id, record_id, is_session)
                select id, $2, $3 from known
                on conflict do nothing
            )
            select not exists (select from unnest($1::uuid[]) as asked (id) where id not in (select id from known))
                as "known!"
            "#,
            &episodes.iter().map(|id| id.0).collect::<Vec<_>>(),
            session.map_or(execution.0, |session| session.0),
            session.is_some(),
        );
        Ok(known.fetch_one(&self.pool).await?)
    }

    /// Replaces the content of an episode of `tenant`, if its hash is still `expected`. Its relations came from the old
    /// text and go, as do, by the sweep, the copies in the journal of the update that wrote it.
    ///
    /// # Errors
    /// Postgres refused the text or is unavailable.
    pub async fn change_episode(
        &self,
        tenant: TenantId,
        id: EpisodeId,
        expected: &[u8],
        content: &str,
    ) -> Result<Changed, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let row = sqlx::query!(
            r#"
            with old as materialized (
                select m.id, m.hash, m.version, m.written_by from memory_episodes m
                where m.id = $1 and m.tenant_id = $2
                for update
            ),
            changed as (
                -- An update under way has read the old text: it adds no relations to the new one.
                update memory_episodes m
                set content = $4, hash = $5, version = old.version + 1, updated_at = longhaul_now(),
                    embedding_model = null, written_by = null
                from old where m.id = old.id and old.hash = $3
                returning m.version, old.written_by
            ),
            void as (
                update memory_updates u set is_void = true from changed where u.execution_id = changed.written_by
            )
            select old.hash, (select version from changed) as version from old
            "#,
            id.0,
            tenant.0,
            expected,
            content,
            &episode_hash(content)[..],
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(row) = row else { return Ok(Changed::NotFound) };
        let Some(version) = row.version else { return Ok(Changed::Differs(row.hash)) };
        forget_origins(&mut transaction, id).await?;
        transaction.commit().await?;
        Ok(Changed::Done(version))
    }
}
