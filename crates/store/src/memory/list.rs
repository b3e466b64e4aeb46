//! Episodes as callers see them.

use chrono::{DateTime, Utc};
use longhaul_domain::{EpisodeId, ExecutionId, SessionId, TenantId};
use uuid::Uuid;

use crate::{Store, StoreError, database::plans::begin_list, tenants::scope::TenantScope};

/// An episode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Episode {
    pub id: EpisodeId,
    pub tenant_id: TenantId,
    pub agent_key: String,
    pub scope: String,
    /// Execution in which it was said.
    pub execution_id: ExecutionId,
    pub session_id: Option<SessionId>,
    /// Number of the exchange in its source; 0 for a call of the tool `remember`.
    pub exchange: i32,
    pub content: String,
    pub hash: Vec<u8>,
    pub version: i32,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Episodes to list; a field that is absent passes all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpisodeFilter {
    pub id: Option<EpisodeId>,
    pub agent: Option<String>,
    pub scope: Option<String>,
    pub session: Option<SessionId>,
    /// Those older than this one.
    pub before: Option<EpisodeId>,
}

impl Store {
    /// The newest episodes that pass the filter; at most `limit`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_episodes(
        &self,
        scope: &TenantScope,
        filter: &EpisodeFilter,
        limit: i64,
    ) -> Result<Vec<Episode>, StoreError> {
        let tenants = scope.ids();
        let query = sqlx::query_as!(
            Episode,
            r#"
            select m.id, m.tenant_id, m.agent_key, m.scope, m.execution_id, m.session_id as "session_id: _", m.exchange,
                m.content, m.hash,
                m.version, m.created_at, m.updated_at
            from (select id as tenant_id from tenants where $1::uuid[] is null or id = any ($1)) t
            cross join lateral (
                select * from memory_episodes m
                where m.tenant_id = t.tenant_id and ($2::uuid is null or m.id = $2)
                    and ($3::text is null or m.agent_key = $3) and ($4::text is null or m.scope = $4)
                    and ($5::uuid is null or m.session_id = $5) and ($6::uuid is null or m.id < $6)
                order by m.id desc
                limit $7
            ) m
            order by m.id desc
            limit $7
            "#,
            tenants.as_deref() as Option<&[Uuid]>,
            filter.id.map(|id| id.0),
            filter.agent.as_deref(),
            filter.scope.as_deref(),
            filter.session.map(|session| session.0),
            filter.before.map(|id| id.0),
            limit,
        );
        Ok(match filter.id {
            Some(_) => query.fetch_all(&self.pool).await?,
            None => query.fetch_all(&mut *begin_list(&self.pool).await?).await?,
        })
    }
}
