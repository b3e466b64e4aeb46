//! The knowledge graph: entities and relations that a model found in episodes, read beside them in recall.

use super::MemoryPlace;
use crate::{Store, StoreError, history::journal::storable};
use longhaul_domain::{EpisodeId, ExecutionId, LeaseToken, WorkerId};

/// Most entities, and most relations, of one place. Further ones are not stored.
const MAX_NODES: i32 = 10_000;

/// A row of the type `memory_entity`.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::Type)]
#[sqlx(type_name = "memory_entity")]
pub struct Entity {
    pub name: String,
    pub kind: String,
}

/// A row of the type `memory_relation`.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::Type)]
#[sqlx(type_name = "memory_relation")]
pub struct Relation {
    pub subject: String,
    pub predicate: String,
    pub object: String,
    /// Numbers of the exchanges that say so.
    pub exchanges: Vec<i32>,
}

/// A relation, as recall shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub subject: String,
    pub predicate: String,
    pub object: String,
    /// Episodes that say so.
    pub episodes: Vec<EpisodeId>,
}

impl Store {
    /// Stores what a model found in the episodes of an update, as far as these still exist and name it. Repeating it
    /// changes nothing.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; Postgres is unavailable.
    pub async fn store_graph(
        &self,
        (worker, update, token): (WorkerId, ExecutionId, LeaseToken),
        entities: &[Entity],
        relations: &[Relation],
    ) -> Result<(), StoreError> {
        let held = sqlx::query_scalar!(
            r#"
            with alive as materialized (
                select id from workers where id = $1 and dead_at is null for key share
            ),
            holder as materialized (
                select e.id from executions e join alive on alive.id = e.worker_id
                where e.id = $2 and e.lease_token = $3
                for no key update of e
            )
            select longhaul_store_graph(h.id, $4::memory_entity[], $5::memory_relation[], $6) from holder h
            "#,
            worker.0,
            update.0,
            token.0,
            entities as _,
            relations as _,
            MAX_NODES,
        )
        .fetch_optional(&self.pool)
        .await?;
        held.map(drop).ok_or(StoreError::LeaseLost)
    }

    /// Relations of the entities of a place that have a word of `words` in their names, the best match first.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn related_facts(&self, place: &MemoryPlace, words: &str, most: i64) -> Result<Vec<Fact>, StoreError> {
        let facts = sqlx::query_as!(
            Fact,
            r#"
            with query as materialized (
                select longhaul_any_word($4) as q
            ),
            named as materialized (
                select e.id, ts_rank(e.words, query.q, 1) as rank
                from query join memory_entities e on e.words @@ query.q
                where e.tenant_id = $1 and e.agent_key = $2 and e.scope = $3
                order by rank desc, e.id
                limit $5
            )
            select s.name as subject, r.predicate, o.name as object,
                array(select x.episode_id from memory_relation_sources x where x.relation_id = r.id limit 10)
                    as "episodes!: _"
            from memory_relations r
            join memory_entities s on s.id = r.subject_id
            join memory_entities o on o.id = r.object_id
            where r.subject_id in (select id from named) or r.object_id in (select id from named)
            order by greatest(
                (select n.rank from named n where n.id = r.subject_id),
                (select n.rank from named n where n.id = r.object_id)
            ) desc, r.id
            limit $5
            "#,
            place.tenant.0,
            place.agent,
            place.scope,
            storable(words),
            most,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(facts)
    }
}
