//! Reading the quarantine.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use crate::{Store, StoreError, database::plans::begin_list, tenants::scope::TenantScope};
use longhaul_domain::{ExecutionId, TenantId};

/// An execution that killed its workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Quarantined {
    pub id: ExecutionId,
    pub tenant_id: TenantId,
    pub definition_key: String,
    /// Version of the definition, while that is known.
    pub definition_version: Option<i32>,
    pub agent_key: String,
    pub queue: String,
    pub quarantined_at: DateTime<Utc>,
    /// Time after which it is not released any more.
    pub deadline_at: DateTime<Utc>,
    /// True for a child: its parent was told of its end.
    pub is_child: bool,
    /// Deaths since the last progress, oldest first.
    pub deaths: Value,
    /// Last step of the journal.
    pub last_step: Option<Value>,
    /// Activity at the last death.
    pub phase: String,
    /// Memory of the last worker in bytes, as last known.
    pub memory_bytes: Option<i64>,
    /// `quarantined`, `released`, `withdrawn` (its caller cancelled it) or `expired` (its deadline passed).
    pub state: String,
    /// Retry that released it.
    pub released_as: Option<ExecutionId>,
    pub released_at: Option<DateTime<Utc>>,
    group_state: Option<String>,
    died_builds: Option<Vec<String>>,
    canary: Option<ExecutionId>,
    held_since: Option<DateTime<Utc>>,
}

/// A group of quarantined executions: those of one tenant that run the same definition and agent version.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// `shut` until there is another build, `canary` while one of it is tried, `releasing` afterwards.
    pub state: String,
    /// Builds of the workers that it killed.
    pub died_builds: Vec<String>,
    /// Execution that is tried.
    pub canary: Option<ExecutionId>,
    /// Time since which its new executions are held back.
    pub held_since: Option<DateTime<Utc>>,
}

/// Reason why an execution that was never started is held back.
#[derive(Debug, Clone, PartialEq)]
pub struct Holding {
    pub group: Group,
    /// Number of executions of the group in quarantine.
    pub quarantined: i64,
}

impl Quarantined {
    /// Group with which it waits.
    #[must_use]
    pub fn group(&self) -> Option<Group> {
        self.group_state.clone().map(|state| Group {
            state,
            died_builds: self.died_builds.clone().unwrap_or_default(),
            canary: self.canary,
            held_since: self.held_since,
        })
    }
}

impl Store {
    /// Quarantined executions of these tenants, by id, after `after`; `with_past` also those that are no longer
    /// in quarantine.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_quarantined(
        &self,
        reach: &TenantScope,
        with_past: bool,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Quarantined>, StoreError> {
        self.read_quarantined(reach, None, with_past, after, limit).await
    }

    /// One quarantined execution. `None` if none of that id within `reach` is or was in quarantine.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_quarantined(
        &self,
        reach: &TenantScope,
        id: ExecutionId,
    ) -> Result<Option<Quarantined>, StoreError> {
        Ok(self.read_quarantined(reach, Some(id), true, None, 1).await?.into_iter().next())
    }

    async fn read_quarantined(
        &self,
        reach: &TenantScope,
        id: Option<ExecutionId>,
        with_past: bool,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Quarantined>, StoreError> {
        let tenants = reach.ids();
        let query = sqlx::query_file_as!(
            Quarantined,
            "src/sql/quarantined.sql",
            tenants.as_deref(),
            id.map(|id| id.0),
            with_past,
            after,
            limit,
        );
        Ok(match id {
            Some(_) => query.fetch_all(&self.pool).await?,
            None => query.fetch_all(&mut *begin_list(&self.pool).await?).await?,
        })
    }

    /// Reason why an execution that was never started is held back; `None` if its group is not (any more).
    pub(crate) async fn holding_of(&self, id: ExecutionId) -> Result<Option<Holding>, StoreError> {
        let row = sqlx::query!(
            r#"
            select g.state, g.died_builds, g.canary, g.held_since,
                (
                    select count(*) from quarantine q
                    where q.tenant_id = g.tenant_id and q.definition_version_id = g.definition_version_id
                        and q.agent_version_id = g.agent_version_id and q.released_as is null and q.withdrawn_at is null
                ) as "quarantined!"
            from executions e
            join quarantine_groups g on g.tenant_id = e.tenant_id and g.definition_version_id = e.definition_version_id
                and g.agent_version_id = e.agent_version_id
            where e.id = $1 and g.held_since is not null
            "#,
            id.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| Holding {
            group: Group {
                state: row.state,
                died_builds: row.died_builds,
                canary: row.canary.map(ExecutionId),
                held_since: row.held_since,
            },
            quarantined: row.quarantined,
        }))
    }
}
