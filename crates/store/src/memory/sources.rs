//! Sessions and executions that memory is to take, and the submit of the executions that do so: exactly once for each
//! end, in the transaction that notes it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_domain::{AgentVersionId, DefinitionVersionId, ExecutionId, ServeKey, SessionId, TenantId};
use longhaul_sdk::spec::{BudgetSpec, MemorySpec};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{MemoryPlace, memory_definition};
use crate::{
    Store, StoreError,
    catalogue::definitions::MEMORY_DEFINITION,
    executions::{
        planned::Pinned,
        submit::{NewExecution, insert_rows},
    },
    fleet::maintenance::Runnable,
};

/// Idle time after which a session has ended, in seconds.
const IDLE_END: f64 = 1_800.0;
/// Time after which an update has ended, whatever became of it, in seconds: longer than its deadline.
const RETRY: f64 = 90_000.0;
/// Shortest and longest time between two looks at an execution under way, in seconds.
const SOONEST: f64 = 2.0;
const LATEST: f64 = 300.0;

struct Due {
    id: Uuid,
    tenant_id: Uuid,
    agent_key: String,
    agent_version_id: Uuid,
    is_session: bool,
    is_there: bool,
    is_over: bool,
    has_more: bool,
    next_check: DateTime<Utc>,
    /// Next look if an update is submitted now, in case that fails.
    retry_at: DateTime<Utc>,
}

impl Store {
    /// Notes that memory takes what an execution says, or its session from this message on, and returns the place.
    /// `None` if the scope has no value of at most 256 characters. A repeat changes nothing.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn note_memory_source(
        &self,
        execution: ExecutionId,
        spec: &MemorySpec,
    ) -> Result<Option<MemoryPlace>, StoreError> {
        let path = spec.scope_path();
        let place = sqlx::query_file_as!(
            MemoryPlace,
            "src/sql/note_memory_source.sql",
            execution.0,
            path.as_deref(),
            spec.scope.as_deref(),
            IDLE_END,
            SOONEST,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(place)
    }

    /// Submits an execution for each source that has ended and has something to take; looks at no more than `limit`.
    ///
    /// # Errors
    /// Postgres is unavailable; one source's own failure only puts it off.
    pub async fn submit_memory_updates(&self, limit: i64, budget: &BudgetSpec) -> Result<Vec<Runnable>, StoreError> {
        let due = sqlx::query_scalar!(
            "select id from memory_sources where check_at <= longhaul_now() order by check_at limit $1",
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let definition = DefinitionVersionId(self.put_memory_definition().await?.id);
        match self.submit_updates_of(&due, definition, budget).await {
            Err(error) if !error.is_retryable() => {}
            submitted => return submitted,
        }
        let mut updates = Vec::new();
        for source in due {
            match self.submit_updates_of(&[source], definition, budget).await {
                Ok(submitted) => updates.extend(submitted),
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    tracing::warn!(memory.source = %source, error = %error, "memory cannot take what has ended");
                    self.put_off(source).await?;
                }
            }
        }
        Ok(updates)
    }

    async fn submit_updates_of(
        &self,
        sources: &[Uuid],
        definition: DefinitionVersionId,
        budget: &BudgetSpec,
    ) -> Result<Vec<Runnable>, StoreError> {
        // Before the transaction, because the first one takes another connection.
        let mut ids = Vec::with_capacity(sources.len());
        for _ in sources {
            ids.push(self.new_execution_id().await?);
        }
        let mut transaction = self.pool.begin().await?;
        let due =
            sqlx::query_file_as!(Due, "src/sql/due_memory_sources.sql", sources, IDLE_END, SOONEST, LATEST, RETRY)
                .fetch_all(&mut *transaction)
                .await?;
        let (there, gone): (Vec<Due>, Vec<Due>) = due.into_iter().partition(|due| due.is_there);
        let (over, open): (Vec<Due>, Vec<Due>) = there.into_iter().partition(|due| due.is_over);
        note_checks(&mut transaction, &gone, &over, &open).await?;
        let ended = ids.into_iter().zip(over.iter().filter(|due| due.has_more));
        let updates: Vec<(NewExecution, Uuid)> =
            ended.map(|(id, source)| (update_of(id, source, definition, budget), source.id)).collect();
        let rows: Vec<&NewExecution> = updates.iter().map(|(new, _)| new).collect();
        insert_rows(&mut transaction, &rows).await?;
        let (ids, sources): (Vec<Uuid>, Vec<Uuid>) = updates.iter().map(|(new, source)| (new.id.0, *source)).unzip();
        sqlx::query!(
            "insert into memory_updates (execution_id, source_id) select * from unnest($1::uuid[], $2::uuid[])",
            &ids,
            &sources,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(updates.into_iter().map(|(new, _)| Runnable { id: new.id, queue: new.queue }).collect())
    }

    /// Looks at a source again when an update of it would have ended.
    async fn put_off(&self, source: Uuid) -> Result<(), StoreError> {
        sqlx::query!(
            "update memory_sources set check_at = longhaul_now() + $2::float8 * interval '1 second' where id = $1",
            source,
            RETRY,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

fn update_of(id: ExecutionId, source: &Due, definition: DefinitionVersionId, budget: &BudgetSpec) -> NewExecution {
    let spec = memory_definition();
    let named = if source.is_session { SessionId(source.id).to_string() } else { source.id.to_string() };
    let pinned = Pinned {
        definition_key: MEMORY_DEFINITION.to_owned(),
        definition_version_id: definition,
        agent_key: source.agent_key.clone(),
        agent_version_id: AgentVersionId(source.agent_version_id),
        // It has none of the agent's tools.
        serve_key: ServeKey::default(),
        deadline: Duration::from_secs(spec.deadline_seconds.into()),
        active_timeout: Duration::from_secs(spec.active_timeout_seconds.into()),
        budget: Some(budget.clone()),
    };
    let input = json!({ "source": named }).to_string();
    NewExecution { priority: 0, ..NewExecution::of(id, TenantId(source.tenant_id), pinned, input) }
}

/// Removes sources that are gone, and sets when the others are looked at again.
async fn note_checks(
    connection: &mut PgConnection,
    gone: &[Due],
    over: &[Due],
    open: &[Due],
) -> Result<(), StoreError> {
    if !gone.is_empty() {
        let ids: Vec<Uuid> = gone.iter().map(|due| due.id).collect();
        sqlx::query!("delete from memory_sources where id = any ($1)", &ids).execute(&mut *connection).await?;
    }
    let next = open
        .iter()
        .map(|due| (due.id, Some(due.next_check)))
        .chain(over.iter().map(|due| (due.id, due.has_more.then_some(due.retry_at))));
    let (ids, next): (Vec<Uuid>, Vec<Option<DateTime<Utc>>>) = next.unzip();
    sqlx::query!(
        "update memory_sources m set check_at = next.check_at \
         from unnest($1::uuid[], $2::timestamptz[]) as next (id, check_at) where m.id = next.id",
        &ids,
        &next as &[Option<DateTime<Utc>>],
    )
    .execute(connection)
    .await?;
    Ok(())
}
