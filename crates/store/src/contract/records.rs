//! Executions of the agent-execution contract: those refused at submit, and the record of any.

use chrono::{DateTime, Utc};
use longhaul_contract::{
    ContractRun,
    record::Recorded,
    steps::{Gathered, gather},
};
use longhaul_domain::{ExecutionId, ExecutionStatus, TenantId};
use longhaul_sdk::Failure;
use longhaul_telemetry::metrics;
use serde_json::{Map, Value};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::submit::{NewExecution, SubmissionRow, Submitted},
    history::body::decode,
    tenants::scope::TenantScope,
};

/// Most executions listed for one request id.
const MAX_OF_REQUEST: i64 = 20;
/// Most steps of one run that are read for its calls; a run of three rounds has far fewer.
const MAX_STEPS: i64 = 10_000;

/// An execution of the contract as stored, without its calls.
#[derive(Debug, Clone)]
pub struct ContractExecution {
    pub id: ExecutionId,
    pub status: ExecutionStatus,
    /// The request.
    pub run: ContractRun,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    failure_code: Option<String>,
    failure_summary: Option<String>,
    failure_detail: Option<String>,
    output: Option<String>,
}

/// The request of a contract, as a column.
#[derive(sqlx::Type)]
#[sqlx(transparent)]
struct Run(Json<ContractRun>);

impl From<Run> for ContractRun {
    fn from(Run(run): Run) -> Self {
        run.0
    }
}

impl Store {
    /// Stores an execution that fails at submit.
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable.
    pub async fn refuse_execution(&self, new: &NewExecution, failure: &Failure) -> Result<Submitted, StoreError> {
        let stored = sqlx::query_file_scalar!(
            "src/sql/refuse.sql",
            SubmissionRow::from(new) as _,
            failure.class.as_str(),
            failure.code.as_str(),
            failure.summary,
            failure.detail.as_ref().map(Value::to_string),
        )
        .fetch_optional(&self.pool)
        .await?;
        match (stored, &new.idempotency) {
            (None, Some(own)) => match self.find_idempotency_key(new.tenant_id, &own.key).await? {
                Some((id, _)) if id == new.id => Ok(Submitted::Created(id)),
                Some((id, hash)) if hash == own.request_hash => Ok(Submitted::Existing(id)),
                Some((id, _)) => Ok(Submitted::KeyReused(id)),
                None => Err(StoreError::Conflict("an idempotency key vanished while it was read".into())),
            },
            (Some(_), _) => {
                metrics::executions_submitted(1);
                metrics::executions_ended(Some(failure.class), 1);
                Ok(Submitted::Created(new.id))
            }
            (None, None) => Ok(Submitted::Created(new.id)),
        }
    }

    /// An execution of the contract; `None` if there is none within `reach`.
    ///
    /// # Errors
    /// Postgres is unavailable, or stored data cannot be read.
    pub async fn contract_execution(
        &self,
        reach: &TenantScope,
        id: ExecutionId,
    ) -> Result<Option<ContractExecution>, StoreError> {
        let tenants = reach.ids();
        // The overrides of anything else have no contract: those of a fork, for one.
        let found = sqlx::query_as!(
            ContractExecution,
            r#"
            select e.id, e.status::text as "status!: _", e.created_at, e.started_at, e.finished_at, e.failure_code,
                p.failure_summary, p.failure_detail::text, p.output::text, p.overrides -> 'contract' as "run!: Run"
            from executions e join execution_payloads p on p.execution_id = e.id
            where e.id = $1 and p.overrides ->> 'contract' is not null and ($2::uuid[] is null or e.tenant_id = any($2))
            "#,
            id.0,
            tenants.as_deref() as Option<&[Uuid]>,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(found)
    }

    /// Newest executions of the contract that were submitted under a request id.
    ///
    /// # Errors
    /// As [`Self::contract_execution`].
    pub async fn contract_executions_of_request(
        &self,
        reach: &TenantScope,
        request_id: &str,
    ) -> Result<Vec<ContractExecution>, StoreError> {
        let tenants = reach.ids();
        let found = sqlx::query_as!(
            ContractExecution,
            r#"
            select e.id, e.status::text as "status!: _", e.created_at, e.started_at, e.finished_at, e.failure_code,
                p.failure_summary, p.failure_detail::text, p.output::text, p.overrides -> 'contract' as "run!: Run"
            from executions e join execution_payloads p on p.execution_id = e.id
            where e.metadata <> '{}' and e.metadata @> jsonb_build_object('request_id', $1::text)
                and p.overrides ->> 'contract' is not null and ($2::uuid[] is null or e.tenant_id = any($2))
            order by e.id desc
            limit $3
            "#,
            request_id,
            tenants.as_deref() as Option<&[Uuid]>,
            MAX_OF_REQUEST,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(found)
    }

    /// The record of an execution, with its calls.
    ///
    /// # Errors
    /// As [`Self::contract_execution`].
    pub async fn contract_record(&self, of: ContractExecution) -> Result<Recorded, StoreError> {
        let calls = if of.status.is_terminal() && of.started_at.is_some() {
            let steps = sqlx::query_scalar!(
                "select body from steps where execution_id = $1 order by seq limit $2",
                of.id.0,
                MAX_STEPS
            );
            let bodies = steps.fetch_all(&self.pool).await?;
            let bodies: Result<Vec<Vec<u8>>, _> = bodies.iter().map(|body| decode(body)).collect();
            gather(bodies?.iter().map(Vec::as_slice))
        } else {
            Gathered::default()
        };
        let corrupt = |error: serde_json::Error| StoreError::Corrupt(format!("the end of {}: {error}", of.id));
        let detail: Option<Value> =
            of.failure_detail.as_deref().map(serde_json::from_str).transpose().map_err(corrupt)?;
        let output: Option<Value> = of.output.as_deref().map(serde_json::from_str).transpose().map_err(corrupt)?;
        let output_text = output.map(|output| match output.get("response") {
            Some(Value::String(text)) => text.clone(),
            Some(_) | None => output.to_string(),
        });
        let failure_detail = match detail {
            Some(Value::Object(facts)) => facts,
            Some(_) | None => Map::new(),
        };
        Ok(Recorded {
            id: of.id.to_string(),
            status: of.status,
            agent_ref: of.run.agent_ref,
            agent_version: of.run.agent_version,
            model_ref: calls.model_ref.or(of.run.model),
            runtime_profile: of.run.runtime_profile,
            created_at: of.created_at,
            started_at: of.started_at,
            finished_at: of.finished_at,
            output_text,
            failure_code: of.failure_code,
            failure_summary: of.failure_summary,
            failure_detail,
            calls: calls.calls.into_iter().collect(),
            has_tools: !of.run.tools.is_empty(),
        })
    }

    /// Records the tenant of an execution that another engine runs, and deletes a few records older than 30 days.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_forwarded(&self, tenant: TenantId, id: &str) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            with old as (
                delete from forwarded_executions where id in (
                    select id from forwarded_executions where created_at < longhaul_now() - interval '30 days'
                    order by created_at limit 4 for update skip locked
                )
            )
            insert into forwarded_executions (id, tenant_id, created_at) values ($1, $2, longhaul_now())
            on conflict (id) do nothing
            "#,
            id,
            tenant.0,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Returns true if `tenant` had another engine run that execution.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn is_forwarded(&self, tenant: TenantId, id: &str) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(
            r#"select exists (select from forwarded_executions where id = $1 and tenant_id = $2) as "found!""#,
            id,
            tenant.0,
        );
        Ok(found.fetch_one(&self.pool).await?)
    }
}
