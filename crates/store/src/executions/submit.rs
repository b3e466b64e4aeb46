//! Submits executions: many in one statement, each idempotent by its id and, if the caller gave one, by its
//! idempotency key.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use longhaul_sdk::{Usd, spec::BudgetSpec};
use serde_json::Value;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::batch::{BatchLimits, Batcher, Flushed},
    executions::budgets::Caps,
    files::attach,
};
use longhaul_domain::{
    AgentVersionId, ApiKeyId, DefinitionVersionId, ExecutionId, FileId, MAX_DEADLINE, ServeKey, TenantId, WaitReason,
};
use longhaul_telemetry::metrics::{self, StoreBatch};

/// Most executions of one insert.
const MAX_BATCH: usize = 500;

/// A validated request, as the store keeps it.
#[derive(Debug, Clone)]
pub struct NewExecution {
    /// Id from [`Store::new_execution_id`].
    pub id: ExecutionId,
    pub tenant_id: TenantId,
    pub definition_key: String,
    /// Pinned version.
    pub definition_version_id: DefinitionVersionId,
    pub agent_key: String,
    /// Pinned version.
    pub agent_version_id: AgentVersionId,
    pub queue: String,
    /// Requirements on a worker.
    pub serve_key: ServeKey,
    /// 0 to 9; higher is claimed first.
    pub priority: i16,
    /// Labels for filters; an object.
    pub metadata: Value,
    /// Exact JSON text of the input.
    pub input: String,
    /// Earliest start.
    pub run_at: Option<DateTime<Utc>>,
    /// Longest life, waits included.
    pub deadline: Duration,
    /// Longest time held by workers.
    pub active_timeout: Duration,
    /// Key that submitted it.
    pub submitted_by: Option<ApiKeyId>,
    /// W3C trace context of the submit.
    pub traceparent: Option<String>,
    /// The caller's idempotency key.
    pub idempotency: Option<Idempotency>,
    /// Budget of the execution and everything it starts. A child has its root's instead.
    pub budget: Option<BudgetSpec>,
    /// Deviations from its agent, as JSON text of `AgentOverrides`.
    pub overrides: Option<String>,
}

/// A caller's `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Key as the caller sent it.
    pub key: String,
    /// SHA-256 of the request; another request under the same key is refused.
    pub request_hash: Vec<u8>,
}

impl NewExecution {
    /// Estimated size in a statement, in bytes.
    fn bytes(&self) -> usize {
        self.input.len() + self.overrides.as_ref().map_or(0, String::len)
    }
}

/// Result of one submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// The execution was stored.
    Created(ExecutionId),
    /// The same request under the same key was stored before.
    Existing(ExecutionId),
    /// The key was used for another request; nothing was stored.
    KeyReused(ExecutionId),
}

/// Values that the database chose for a stored execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    pub(crate) id: ExecutionId,
    pub created_at: DateTime<Utc>,
    pub deadline_at: DateTime<Utc>,
    pub wait_reason: WaitReason,
    /// End of the wait, where known.
    pub wait_until: Option<DateTime<Utc>>,
}

/// Result of one submit, and the initial state if this very call stored the execution.
pub type SubmitAnswer = (Submitted, Option<Beginning>);

/// Batches the submits of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Submitter(Arc<Batcher<NewExecution, SubmitAnswer>>);

impl Submitter {
    /// Starts batching; an outage of Postgres is waited out for `patience` before a submit fails.
    #[must_use]
    pub fn spawn(store: Store, patience: Duration) -> Self {
        let limits =
            BatchLimits { what: StoreBatch::Submit, max_items: MAX_BATCH, lanes: 2, max_waiting: 10_000, patience };
        Self(Arc::new(Batcher::spawn(limits, store.trouble.clone(), NewExecution::bytes, move |items| {
            let store = store.clone();
            async move {
                let verdicts = store.submit_and_tell(&items).await?;
                Ok(verdicts.into_iter().map(|verdict| Flushed::Done(Ok(verdict))).collect())
            }
        })))
    }

    /// Stores `execution` as PENDING; committed when this returns.
    ///
    /// # Errors
    /// The values were refused, or Postgres stayed away.
    pub async fn submit(&self, execution: impl Into<Arc<NewExecution>>) -> Result<Submitted, StoreError> {
        self.submit_and_tell(execution).await.map(|(submitted, _)| submitted)
    }

    /// As [`Self::submit`], with the initial state of the execution.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn submit_and_tell(&self, execution: impl Into<Arc<NewExecution>>) -> Result<SubmitAnswer, StoreError> {
        self.0.submit(execution).await
    }
}

impl Store {
    /// Inserts a batch; one result per item, in order. Of several items with one key the first wins.
    ///
    /// # Errors
    /// Postgres refused a value of some item, or is unavailable; stored items are recognised on repeat.
    pub async fn submit_executions(&self, items: &[Arc<NewExecution>]) -> Result<Vec<Submitted>, StoreError> {
        Ok(self.submit_and_tell(items).await?.into_iter().map(|(submitted, _)| submitted).collect())
    }

    async fn submit_and_tell(&self, items: &[Arc<NewExecution>]) -> Result<Vec<SubmitAnswer>, StoreError> {
        // Keys in one order, so that two batches with the same keys cannot deadlock.
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| items[i].idempotency.as_ref().map(|own| (items[i].tenant_id, own.key.clone())));
        let mut winners: HashMap<(TenantId, &str), usize> = HashMap::new();
        order.retain(|&i| match &items[i].idempotency {
            Some(own) => {
                let first = *winners.entry((items[i].tenant_id, own.key.as_str())).or_insert(i);
                first == i
            }
            None => true,
        });
        let rows: Vec<&NewExecution> = order.iter().map(|&i| &*items[i]).collect();
        let mut created = self.insert_executions(&rows).await?;
        let stored_keys = self.read_keys(items, &created).await?;
        let verdict = |item: &NewExecution, is_created: bool| {
            match &item.idempotency {
                Some(_) if is_created => Ok(Submitted::Created(item.id)),
                Some(own) => match stored_keys.get(&(item.tenant_id.0, own.key.clone())) {
                    Some((id, hash)) if *hash == own.request_hash && *id == item.id.0 => {
                        Ok(Submitted::Created(item.id))
                    }
                    Some((id, hash)) if *hash == own.request_hash => Ok(Submitted::Existing(ExecutionId(*id))),
                    Some((id, _)) => Ok(Submitted::KeyReused(ExecutionId(*id))),
                    None => Err(StoreError::Conflict("an idempotency key vanished while it was read".into())),
                },
                // Not returned by the insert: a repeat of a batch whose answer was lost.
                None => Ok(Submitted::Created(item.id)),
            }
        };
        let told: Vec<SubmitAnswer> = items
            .iter()
            .map(|item| {
                let beginning = created.remove(&item.id);
                Ok((verdict(item, beginning.is_some())?, beginning))
            })
            .collect::<Result<_, StoreError>>()?;
        let stored = told.iter().filter(|(submitted, _)| matches!(submitted, Submitted::Created(_)));
        metrics::executions_submitted(stored.count() as u64);
        Ok(told)
    }

    /// Stores an execution with uploads attached; `None` if one of them is gone. Not batched: files are rare, and the
    /// statement of all other submits stays as it is.
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable: nothing was stored.
    pub async fn submit_with_files(
        &self,
        execution: &NewExecution,
        files: &[FileId],
    ) -> Result<Option<SubmitAnswer>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let stored = insert_rows(&mut transaction, &[execution]).await?;
        let Some(row) = stored.into_iter().next() else {
            transaction.rollback().await?;
            let Some(own) = &execution.idempotency else {
                return Err(StoreError::Conflict("an execution of the same id exists".into()));
            };
            let held = self.find_idempotency_key(execution.tenant_id, &own.key).await?;
            let (id, hash) = held.ok_or_else(|| StoreError::Conflict("an idempotency key vanished".into()))?;
            let submitted = if hash == own.request_hash { Submitted::Existing(id) } else { Submitted::KeyReused(id) };
            return Ok(Some((submitted, None)));
        };
        if !attach(&mut transaction, (execution.tenant_id, execution.id, None), files).await? {
            transaction.rollback().await?;
            return Ok(None);
        }
        transaction.commit().await?;
        metrics::executions_submitted(1);
        Ok(Some((Submitted::Created(execution.id), Some(row))))
    }

    /// Inserts executions; returns the initial states of those that were not there before.
    async fn insert_executions(&self, rows: &[&NewExecution]) -> Result<HashMap<ExecutionId, Beginning>, StoreError> {
        let mut connection = self.commits.lend().await?;
        let stored = insert_rows(&mut connection, rows).await;
        let stored = connection.back(stored)?;
        if let Some(row) = stored.first() {
            self.clock.observe(row.created_at);
        }
        Ok(stored.into_iter().map(|row| (row.id, row)).collect())
    }

    /// Reads the holders of the keys that were not inserted. A second statement: the first one's snapshot is
    /// older than the winner.
    async fn read_keys(
        &self,
        items: &[Arc<NewExecution>],
        created: &HashMap<ExecutionId, Beginning>,
    ) -> Result<HashMap<(Uuid, String), (Uuid, Vec<u8>)>, StoreError> {
        let lost = items.iter().filter(|item| !created.contains_key(&item.id));
        let (tenants, keys): (Vec<Uuid>, Vec<String>) =
            lost.filter_map(|item| item.idempotency.as_ref().map(|own| (item.tenant_id.0, own.key.clone()))).unzip();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = sqlx::query!(
            r#"
            select k.tenant_id, k.key, k.execution_id, k.request_hash
            from unnest($1::uuid[], $2::text[]) as asked (tenant_id, key)
            join idempotency_keys k using (tenant_id, key)
            "#,
            &tenants,
            &keys,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| ((row.tenant_id, row.key), (row.execution_id, row.request_hash))).collect())
    }
}

/// A row of the type `submission`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "submission")]
pub(crate) struct SubmissionRow {
    id: Uuid,
    tenant_id: Uuid,
    definition_key: String,
    definition_version_id: Uuid,
    agent_key: String,
    agent_version_id: Uuid,
    queue: String,
    serve_key: String,
    priority: i16,
    metadata: Json<Value>,
    input: String,
    overrides: Option<String>,
    run_at: Option<DateTime<Utc>>,
    deadline_seconds: f64,
    deadline_is_near: bool,
    active_timeout_seconds: f64,
    submitted_by: Option<Uuid>,
    traceparent: Option<String>,
    idempotency_key: Option<String>,
    request_hash: Option<Vec<u8>>,
    on_exhausted: Option<String>,
    max_cost: Option<i64>,
    max_tokens: Option<i64>,
    max_calls: Option<i64>,
}

impl From<&NewExecution> for SubmissionRow {
    fn from(of: &NewExecution) -> Self {
        let caps = of.budget.as_ref().map(Caps::from).unwrap_or_default();
        let (idempotency_key, request_hash) =
            of.idempotency.clone().map(|Idempotency { key, request_hash }| (key, request_hash)).unzip();
        Self {
            id: of.id.0,
            tenant_id: of.tenant_id.0,
            definition_key: of.definition_key.clone(),
            definition_version_id: of.definition_version_id.0,
            agent_key: of.agent_key.clone(),
            agent_version_id: of.agent_version_id.0,
            queue: of.queue.clone(),
            serve_key: of.serve_key.0.clone(),
            priority: of.priority,
            metadata: Json(of.metadata.clone()),
            input: of.input.clone(),
            overrides: of.overrides.clone(),
            run_at: of.run_at,
            deadline_seconds: of.deadline.as_secs_f64(),
            // The sweep looks for others when the longest deadline has passed.
            deadline_is_near: of.deadline < MAX_DEADLINE,
            active_timeout_seconds: of.active_timeout.as_secs_f64(),
            submitted_by: of.submitted_by.map(|id| id.0),
            traceparent: of.traceparent.clone(),
            idempotency_key,
            request_hash,
            on_exhausted: of.budget.as_ref().map(|budget| budget.on_exhausted.as_str().to_owned()),
            max_cost: caps.max_cost.map(Usd::nanos),
            max_tokens: caps.max_tokens,
            max_calls: caps.max_calls,
        }
    }
}

/// Inserts executions whose ids and idempotency keys are new; returns those.
pub(crate) async fn insert_rows(connection: &mut PgConnection, rows: &[&NewExecution]) -> sqlx::Result<Vec<Beginning>> {
    insert(connection, rows.iter().map(|row| SubmissionRow::from(*row)).collect()).await
}

/// Inserts an execution that lives for at most `longest`; `None` if its id is not new.
pub(crate) async fn insert_within(
    connection: &mut PgConnection,
    execution: &NewExecution,
    longest: Duration,
) -> sqlx::Result<Option<Beginning>> {
    let mut row = SubmissionRow::from(execution);
    let longest = longest.min(execution.deadline);
    row.deadline_seconds = longest.as_secs_f64();
    row.deadline_is_near = longest < MAX_DEADLINE;
    Ok(insert(connection, vec![row]).await?.pop())
}

async fn insert(connection: &mut PgConnection, rows: Vec<SubmissionRow>) -> sqlx::Result<Vec<Beginning>> {
    sqlx::query_file_as!(Beginning, "src/sql/submit.sql", &rows as _).fetch_all(connection).await
}
