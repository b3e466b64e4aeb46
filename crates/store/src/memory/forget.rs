//! Forgetting: episodes go with their embeddings, with the entities and relations that come from no other episode, and
//! with the copies in the journals of the executions that wrote them.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use longhaul_domain::{EpisodeId, ExecutionId, SessionId, TenantId};
use sqlx::PgConnection;
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

/// Deleted episodes, and the records that hold its texts still: those in which it was said, and those that recalled
/// it. At most 1,000 of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub episodes: u64,
    pub sessions: BTreeSet<SessionId>,
    /// Executions outside sessions.
    pub executions: BTreeSet<ExecutionId>,
}

/// A session, or an execution outside sessions.
struct Record {
    id: Uuid,
    is_session: bool,
}

impl Forgotten {
    fn name(&mut self, records: Vec<Record>) {
        for Record { id, is_session } in records {
            if is_session && self.sessions.len() < MAX_NAMED {
                self.sessions.insert(SessionId(id));
            } else if !is_session && self.executions.len() < MAX_NAMED {
                self.executions.insert(ExecutionId(id));
            }
        }
    }
}

impl Store {
    /// Forgets the episodes that pass the filter, in portions. With an agent and neither an execution nor a session,
    /// also what was said there and was not taken yet.
    ///
    /// # Errors
    /// Postgres is unavailable; a repeat forgets the rest.
    pub async fn forget(&self, tenant: TenantId, filter: &ForgottenFilter) -> Result<Forgotten, StoreError> {
        let mut forgotten = Forgotten::default();
        // First: what an update takes before is an episode then.
        if let ForgottenFilter { id: None, agent: Some(agent), scope, execution: None, session: None } = filter {
            self.skip_untaken(tenant, agent, scope.as_deref(), &mut forgotten).await?;
        }
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
                break;
            }
            forgotten.episodes += self.forget_portion(tenant, &ids, &mut forgotten).await?;
        }
        self.erase_void_updates(Some(tenant)).await?;
        Ok(forgotten)
    }

    /// Names what an agent's sources have said and memory has not taken, which it never takes then.
    async fn skip_untaken(
        &self,
        tenant: TenantId,
        agent: &str,
        scope: Option<&str>,
        forgotten: &mut Forgotten,
    ) -> Result<(), StoreError> {
        let mut after = Uuid::nil();
        loop {
            let sources = sqlx::query_scalar!(
                r#"
                select id from memory_sources
                where tenant_id = $1 and agent_key = $2 and ($3::text is null or scope = $3) and id > $4
                order by id
                limit $5
                "#,
                tenant.0,
                agent,
                scope,
                after,
                PORTION,
            )
            .fetch_all(&self.pool)
            .await?;
            let Some(last) = sources.last() else { return Ok(()) };
            after = *last;
            let skipped = sqlx::query_as!(
                Record,
                r#"
                update memory_sources m
                set taken = said.turns
                from (
                    select m.id, case when m.is_session then s.turns else 1 end as turns
                    from memory_sources m left join sessions s on m.is_session and s.id = m.id
                    where m.id = any ($1)
                ) as said
                -- An update that takes it now is waited for, and then there is nothing to skip.
                where m.id = said.id and m.taken < said.turns
                returning m.id, m.is_session
                "#,
                &sources,
            )
            .fetch_all(&self.pool)
            .await?;
            forgotten.name(skipped);
        }
    }

    async fn forget_portion(
        &self,
        tenant: TenantId,
        ids: &[Uuid],
        forgotten: &mut Forgotten,
    ) -> Result<u64, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // A recall takes a lock on its episodes: all that are noted later find them gone.
        sqlx::query!("select from memory_episodes where id = any ($1) order by id for update", ids)
            .execute(&mut *transaction)
            .await?;
        let records = sqlx::query_as!(
            Record,
            r#"
            with records as materialized (
                select coalesce(m.session_id, m.execution_id) as id, m.session_id is not null as is_session
                from memory_episodes m where m.id = any ($1)
                union
                select r.record_id, r.is_session from memory_recalls r where r.episode_id = any ($1)
            )
            (select id as "id!", is_session as "is_session!" from records where is_session order by id limit $2)
            union all
            (select id, is_session from records where not is_session order by id limit $2)
            "#,
            ids,
            MAX_NAMED as i64,
        )
        .fetch_all(&mut *transaction)
        .await?;
        let gone = sqlx::query_scalar!(r#"select longhaul_forget_episodes($1, $2) as "gone!""#, tenant.0, ids)
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        forgotten.name(records);
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
        Ok(())
    }

    /// Forgets what one execution said, and takes nothing of it any more.
    ///
    /// # Errors
    /// Postgres is unavailable; a repeat forgets the rest.
    pub(crate) async fn forget_execution(&self, tenant: TenantId, id: ExecutionId) -> Result<(), StoreError> {
        sqlx::query!("update memory_updates set is_void = true where source_id = $1", id.0).execute(&self.pool).await?;
        // Its scope has a value of the metadata.
        sqlx::query!("delete from memory_sources where id = $1 and tenant_id = $2", id.0, tenant.0)
            .execute(&self.pool)
            .await?;
        sqlx::query!("delete from memory_recalls where record_id = $1", id.0).execute(&self.pool).await?;
        self.forget(tenant, &ForgottenFilter { execution: Some(id), ..ForgottenFilter::default() }).await?;
        Ok(())
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

    /// Forgets episodes that nothing changed since `before`; at most one portion, each by itself.
    ///
    /// # Errors
    /// The first failure; the others are forgotten nevertheless.
    pub async fn forget_old_episodes(&self, before: DateTime<Utc>) -> Result<(), StoreError> {
        let old = sqlx::query!(
            "select id, tenant_id from memory_episodes where updated_at < $1 order by updated_at limit $2",
            before,
            PORTION,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut failed = None;
        for row in &old {
            let gone = self.forget_portion(TenantId(row.tenant_id), &[row.id], &mut Forgotten::default()).await;
            keep_first(&mut failed, gone.map(drop))?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Erases the texts of ended updates that took something that was forgotten; of one tenant, or of all. Each by
    /// itself.
    ///
    /// # Errors
    /// The first failure; the others are erased nevertheless.
    pub(crate) async fn erase_void_updates(&self, tenant: Option<TenantId>) -> Result<(), StoreError> {
        let (mut after, mut failed) = (Uuid::nil(), None);
        loop {
            let void = sqlx::query!(
                r#"
                select u.execution_id, e.finished_at is not null as "has_ended!"
                from memory_updates u left join executions e on e.id = u.execution_id
                where u.is_void and (e.id is null or e.finished_at is not null)
                    and ($1::uuid is null or e.tenant_id = $1) and u.execution_id > $2
                order by u.execution_id
                limit $3
                "#,
                tenant.map(|tenant| tenant.0),
                after,
                UPDATES,
            )
            .fetch_all(&self.pool)
            .await?;
            let Some(last) = void.last() else { return failed.map_or(Ok(()), Err) };
            after = last.execution_id;
            for row in &void {
                keep_first(&mut failed, self.erase_update(row.execution_id, row.has_ended).await)?;
            }
        }
    }

    async fn erase_update(&self, id: Uuid, is_there: bool) -> Result<(), StoreError> {
        if is_there {
            self.erase_one(id).await?;
        }
        sqlx::query!("delete from memory_updates where execution_id = $1", id).execute(&self.pool).await?;
        Ok(())
    }
}

/// Keeps the first failure of several items. One that the next items would meet as well is returned.
fn keep_first(failed: &mut Option<StoreError>, result: Result<(), StoreError>) -> Result<(), StoreError> {
    match result {
        Err(StoreError::Unreachable(_) | StoreError::Closed) => return result,
        Err(error) => drop(failed.get_or_insert(error)),
        Ok(()) => {}
    }
    Ok(())
}

/// Removes the entities and relations of which an episode is the only source.
pub(super) async fn forget_origins(connection: &mut PgConnection, id: EpisodeId) -> Result<(), StoreError> {
    let entities =
        sqlx::query_scalar!("delete from memory_entity_sources where episode_id = $1 returning entity_id", id.0)
            .fetch_all(&mut *connection)
            .await?;
    let relations =
        sqlx::query_scalar!("delete from memory_relation_sources where episode_id = $1 returning relation_id", id.0)
            .fetch_all(&mut *connection)
            .await?;
    sqlx::query!("select longhaul_forget_unsourced($1, $2)", &entities, &relations).fetch_one(connection).await?;
    Ok(())
}
