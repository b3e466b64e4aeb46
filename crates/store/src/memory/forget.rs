//! Forgetting: episodes go with their embeddings, with the entities and relations that come from no other episode, and
//! with the copies in the journals of the executions that wrote them.

use chrono::{DateTime, Utc};
use longhaul_shared::domain::{EpisodeId, ExecutionId, SessionId, TenantId};
use uuid::Uuid;

use super::MemoryPlace;
use crate::{Store, StoreError};

/// Episodes that are forgotten at a time.
const PORTION: i64 = 200;
/// Most sessions and executions that an answer names, each.
const MAX_NAMED: usize = 1_000;
/// Updates whose texts are erased by one run of the sweep.
const UPDATES: i64 = 20;

/// Episodes of a tenant to forget; a field that is absent passes all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForgottenFilter {
    pub id: Option<EpisodeId>,
    pub agent: Option<String>,
    pub scope: Option<String>,
    /// Execution in which they were said.
    pub execution: Option<ExecutionId>,
    pub session: Option<SessionId>,
}

/// What was forgotten, and the records that hold its texts still: those in which it was said, and those that recalled
/// it. At most 1,000 of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub episodes: u64,
    pub sessions: Vec<SessionId>,
    /// Executions outside sessions.
    pub executions: Vec<ExecutionId>,
}

impl Forgotten {
    fn name(&mut self, record: Uuid, is_session: bool) {
        if is_session {
            if self.sessions.len() < MAX_NAMED && !self.sessions.contains(&SessionId(record)) {
                self.sessions.push(SessionId(record));
            }
        } else if self.executions.len() < MAX_NAMED && !self.executions.contains(&ExecutionId(record)) {
            self.executions.push(ExecutionId(record));
        }
    }
}

impl Store {
    /// Forgets the episodes that pass the filter, in portions.
    ///
    /// # Errors
    /// Postgres is unavailable; a repeat forgets the rest.
    pub async fn forget(&self, tenant: TenantId, filter: &ForgottenFilter) -> Result<Forgotten, StoreError> {
        let mut forgotten = Forgotten::default();
        loop {
            let ids = sqlx::query_scalar!(
                r#"
                select id from memory_episodes
                where tenant_id = $1 and ($2::uuid is null or id = $2) and ($3::text is null or agent_key = $3)
                    and ($4::text is null or scope = $4) and ($5::uuid is null or execution_id = $5)
                    and ($6::uuid is null or session_id = $6)
                order by id
                limit $7
                "#,
                tenant.0,
                filter.id.map(|id| id.0),
                filter.agent.as_deref(),
                filter.scope.as_deref(),
                filter.execution.map(|execution| execution.0),
                filter.session.map(|session| session.0),
                PORTION,
            )
            .fetch_all(&self.pool)
            .await?;
            if ids.is_empty() {
                return Ok(forgotten);
            }
            forgotten.episodes += self.forget_portion(tenant, &ids, &mut forgotten).await?;
        }
    }

    async fn forget_portion(
        &self,
        tenant: TenantId,
        ids: &[Uuid],
        forgotten: &mut Forgotten,
    ) -> Result<u64, StoreError> {
        let records = sqlx::query!(
            r#"
            select coalesce(m.session_id, m.execution_id) as "record!", m.session_id is not null as "is_session!"
            from memory_episodes m where m.id = any ($1)
            union
            select r.record_id, r.is_session from memory_recalls r where r.episode_id = any ($1)
            "#,
            ids,
        )
        .fetch_all(&self.pool)
        .await?;
        for row in records {
            forgotten.name(row.record, row.is_session);
        }
        let mut transaction = self.pool.begin().await?;
        void_updates(&mut transaction, ids).await?;
        let gone = sqlx::query_scalar!(r#"select longhaul_forget_episodes($1, $2) as "gone!""#, tenant.0, ids)
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        self.erase_void_updates(Some(tenant)).await?;
        Ok(u64::from(gone.unsigned_abs()))
    }

    /// Forgets what a session said, and takes nothing of it any more.
    ///
    /// # Errors
    /// Postgres is unavailable; a repeat forgets the rest.
    pub(crate) async fn forget_session(&self, tenant: TenantId, session: SessionId) -> Result<(), StoreError> {
        sqlx::query!("update memory_updates set is_void = true where source_id = $1", session.0)
            .execute(&self.pool)
            .await?;
        sqlx::query!("delete from memory_sources where id = $1 and tenant_id = $2", session.0, tenant.0)
            .execute(&self.pool)
            .await?;
        sqlx::query!("delete from memory_recalls where record_id = $1", session.0).execute(&self.pool).await?;
        self.forget(tenant, &ForgottenFilter { session: Some(session), ..ForgottenFilter::default() }).await?;
        self.erase_void_updates(Some(tenant)).await
    }

    /// Forgets what one execution said.
    ///
    /// # Errors
    /// Postgres is unavailable; a repeat forgets the rest.
    pub(crate) async fn forget_execution(&self, tenant: TenantId, id: ExecutionId) -> Result<(), StoreError> {
        sqlx::query!("update memory_updates set is_void = true where source_id = $1", id.0).execute(&self.pool).await?;
        sqlx::query!("delete from memory_recalls where record_id = $1", id.0).execute(&self.pool).await?;
        self.forget(tenant, &ForgottenFilter { execution: Some(id), ..ForgottenFilter::default() }).await?;
        self.erase_void_updates(Some(tenant)).await
    }

    /// Removes the entities and relations of which an episode is the only source, and the copies of its text in the
    /// journals of updates.
    pub(super) async fn forget_origins(&self, tenant: TenantId, id: EpisodeId) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        void_updates(&mut transaction, &[id.0]).await?;
        let entities =
            sqlx::query_scalar!("delete from memory_entity_sources where episode_id = $1 returning entity_id", id.0)
                .fetch_all(&mut *transaction)
                .await?;
        let relations = sqlx::query_scalar!(
            "delete from memory_relation_sources where episode_id = $1 returning relation_id",
            id.0
        )
        .fetch_all(&mut *transaction)
        .await?;
        sqlx::query!("select longhaul_forget_unsourced($1, $2)", &entities, &relations)
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        self.erase_void_updates(Some(tenant)).await
    }

    /// Forgets the oldest episodes of a place beyond `most`.
    pub(super) async fn forget_oldest(&self, place: &MemoryPlace, most: i64) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            select longhaul_forget_episodes($1, array(
                select id from memory_episodes where tenant_id = $1 and agent_key = $2 and scope = $3
                order by created_at desc, exchange desc offset $4
            ))
            "#,
            place.tenant.0,
            place.agent,
            place.scope,
            most,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(())
    }

    /// Forgets episodes that nothing changed since `before`; at most one portion. Returns true if there were any.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_old_episodes(&self, before: DateTime<Utc>) -> Result<bool, StoreError> {
        let old = sqlx::query!(
            "select id, tenant_id from memory_episodes where updated_at < $1 order by updated_at limit $2",
            before,
            PORTION,
        )
        .fetch_all(&self.pool)
        .await?;
        for row in &old {
            self.forget_portion(TenantId(row.tenant_id), &[row.id], &mut Forgotten::default()).await?;
        }
        Ok(!old.is_empty())
    }

    /// Erases the texts of ended updates that took something that was forgotten; of one tenant, or of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn erase_void_updates(&self, tenant: Option<TenantId>) -> Result<(), StoreError> {
        loop {
            let void = sqlx::query!(
                r#"
                select u.execution_id, e.tenant_id as "tenant_id?", e.finished_at is not null as "has_ended!"
                from memory_updates u left join executions e on e.id = u.execution_id
                where u.is_void and (e.id is null or e.finished_at is not null)
                    and ($1::uuid is null or e.tenant_id = $1)
                order by u.execution_id
                limit $2
                "#,
                tenant.map(|tenant| tenant.0),
                UPDATES,
            )
            .fetch_all(&self.pool)
            .await?;
            if void.is_empty() {
                return Ok(());
            }
            for row in &void {
                if row.has_ended {
                    self.erase_one(row.execution_id).await?;
                }
                sqlx::query!("delete from memory_updates where execution_id = $1", row.execution_id)
                    .execute(&self.pool)
                    .await?;
            }
        }
    }
}

/// Marks the updates that wrote these episodes: their texts go when they have ended.
async fn void_updates(connection: &mut sqlx::PgConnection, episodes: &[Uuid]) -> Result<(), StoreError> {
    sqlx::query!(
        "update memory_updates u set is_void = true from memory_episodes m \
         where m.id = any ($1) and u.execution_id = m.written_by and not u.is_void",
        episodes,
    )
    .execute(connection)
    .await?;
    Ok(())
}
