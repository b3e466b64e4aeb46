//! What people do to executions: cancel, retry and fork.

use longhaul_sdk::{
    Usd,
    failure::{FailureClass, FailureCode},
    spec::AgentOverrides,
};
use uuid::Uuid;

use super::{
    Store, StoreError,
    budgets::Caps,
    submit::{NewExecution, Submitted},
};
use crate::{
    domain::{ApiKeyId, ExecutionId, ExecutionStatus, ServeKey, TenantId},
    telemetry::metrics,
};

/// How often a cancel is repeated that met a wake of the same tree the other way round.
const CANCEL_REPEATS: usize = 3;

/// What a request to cancel came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// Nobody held it: it is FAILED `cancelled` now.
    Ended,
    /// A worker holds it and was told; asking again changes nothing.
    Requested,
    /// It ended FAILED `cancelled` before: an earlier request, whose answer may have been lost, did what this one asks for.
    Before,
    /// It was over before.
    AlreadyOver(ExecutionStatus),
    /// There is no such execution of this tenant.
    NotFound,
}

/// What a retry takes over from the execution it repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continue {
    /// The journal up to the failing step: what was answered is not asked again.
    FromJournal,
    /// Nothing.
    FromScratch,
}

/// How a fork differs from its origin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fork {
    /// The first step that is not shared.
    pub before: i32,
    /// The exact JSON text of another input.
    pub input: Option<String>,
    /// What it does differently from its agent, where that differs from its origin.
    pub overrides: Option<AgentOverrides>,
    /// Whether the prompt is rendered anew.
    pub has_new_prompt: bool,
}

/// What a retry or a fork needs to know of its origin.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Where it stands; only FAILED ones can be retried, all can be forked.
    pub status: ExecutionStatus,
    /// Why it failed.
    pub failure_code: Option<String>,
    /// The number of its last recorded step; 0 when there is none, or none is kept.
    pub last_step: i32,
    /// What it does differently from its agent.
    pub overrides: AgentOverrides,
    /// What is submitted again, with a new id.
    pub execution: NewExecution,
}

/// Whether the last answer is what failed, so that it must not be replayed: a validator refused it, and replaying it would
/// fail again without asking anybody. A step that failed by itself is spent already (core-rules 6).
fn last_answer_failed(failure_code: &str) -> bool {
    let by_validator = [FailureCode::VALIDATION_FAILED, FailureCode::MAX_RETRIES_EXCEEDED];
    let is_built_in = FailureCode::BUILT_IN.iter().any(|code| code.as_str() == failure_code);
    // A code that is not ours is one of the definition's own, and only validators use those.
    !is_built_in || by_validator.iter().any(|code| code.as_str() == failure_code)
}

/// How a quarantined execution is let go (docs/adr/0019-quarantine.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    /// The first of its group, under a build that has killed nobody.
    Canary,
    /// The first of its group, because a person says so.
    Manual,
    /// After the canary.
    Rest,
}

impl Release {
    fn as_str(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Manual => "manual",
            Self::Rest => "rest",
        }
    }
}

/// What a new execution takes over from another one's journal.
struct Copy<'a> {
    takes_journal: bool,
    drops_answer: bool,
    fork: Option<&'a Fork>,
    release: Option<Release>,
}

/// Executions that one goes back to; further ones are not looked at.
const MAX_LINE: i32 = 100;

impl Store {
    /// The keys with which `id` was submitted, and those of what it goes back to: origins of retries and forks, and parents.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn submitters_of(&self, id: ExecutionId) -> Result<Vec<ApiKeyId>, StoreError> {
        let keys = sqlx::query_scalar!(
            r#"
            with recursive line as (
                select e.id, e.submitted_by, e.retry_of, e.forked_from, e.parent_id, 1 as place from executions e where e.id = $1
                union
                select o.id, o.submitted_by, o.retry_of, o.forked_from, o.parent_id, l.place + 1
                from line l join executions o on o.id = any (array[l.retry_of, l.forked_from, l.parent_id])
                where l.place < $2
            )
            select distinct submitted_by as "key!" from line where submitted_by is not null
            "#,
            id.0,
            MAX_LINE,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(keys.into_iter().map(ApiKeyId).collect())
    }

    /// Cancels an execution: one that no worker holds ends at once, one that is held gets the flag and its worker ends it
    /// (core-rules 17). Idempotent.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn cancel_execution(&self, tenant: TenantId, id: ExecutionId) -> Result<Cancelled, StoreError> {
        let ids = [id.0];
        let cancel = || self.cancel_rows(&ids, Some(tenant), "cancelled by the caller");
        let mut cancelled = cancel().await;
        // Whoever wakes its tree may have its parent and want it; the cancel has it and wants its parent.
        for _ in 0..CANCEL_REPEATS {
            if !cancelled.as_ref().is_err_and(StoreError::is_deadlock) {
                break;
            }
            cancelled = cancel().await;
        }
        let cancelled = cancelled?;
        if let Some((_, has_ended)) = cancelled.first() {
            return Ok(if *has_ended { Cancelled::Ended } else { Cancelled::Requested });
        }
        let standing = sqlx::query!(
            "select status::text as \"status!\", failure_code from executions where id = $1 and tenant_id = $2",
            id.0,
            tenant.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(standing) = standing else { return Ok(Cancelled::NotFound) };
        if standing.failure_code.as_deref() == Some(FailureCode::CANCELLED.as_str()) {
            return Ok(Cancelled::Before);
        }
        if standing.failure_code.as_deref() == Some(FailureCode::CRASH_LOOP.as_str()) {
            // It stays what it is, and is not released any more.
            self.withdraw_quarantined(tenant, id).await?;
        }
        Ok(match ExecutionStatus::parse(&standing.status) {
            Some(status @ (ExecutionStatus::Finished | ExecutionStatus::Failed)) => Cancelled::AlreadyOver(status),
            Some(ExecutionStatus::Pending | ExecutionStatus::InProgress) => Cancelled::Requested,
            None => return Err(StoreError::Corrupt(format!("status `{}` is unknown", standing.status))),
        })
    }

    /// Cancels what is not over, and tells of each whether it ended. With no `tenant`, because their parents end.
    pub(super) async fn cancel_rows(
        &self,
        ids: &[Uuid],
        tenant: Option<TenantId>,
        summary: &str,
    ) -> Result<Vec<(ExecutionId, bool)>, StoreError> {
        let tenant = tenant.map(|tenant| tenant.0);
        let rows = sqlx::query_file!("src/store/sql/cancel.sql", ids, tenant as Option<Uuid>, summary)
            .fetch_all(&self.pool)
            .await?;
        let cancelled: Vec<(ExecutionId, bool)> =
            rows.into_iter().map(|row| (ExecutionId(row.id), row.ended)).collect();
        metrics::executions_ended(Some(FailureClass::Permanent), cancelled.iter().filter(|(_, ended)| *ended).count());
        Ok(cancelled)
    }

    /// The execution that a retry or a fork would go on from, as a new submit of the same; `None` when this tenant has none.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn read_origin(&self, tenant: TenantId, id: ExecutionId) -> Result<Option<Origin>, StoreError> {
        let row = sqlx::query!(
            r#"
            select e.definition_key, e.definition_version_id, e.agent_key, e.agent_version_id, e.queue, e.serve_key, e.priority,
                e.metadata, e.status::text as "status!", e.failure_code, p.input::text as "input!",
                p.overrides::text as overrides,
                coalesce((select max(s.seq) from steps s where s.execution_id = e.id), 0) as "last_step!",
                extract(epoch from e.deadline_at - e.created_at)::float8 as "deadline!",
                extract(epoch from e.active_timeout)::float8 as "active_timeout!"
            from executions e
            join execution_payloads p on p.execution_id = e.id
            where e.id = $1 and e.tenant_id = $2
            "#,
            id.0,
            tenant.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let seconds = |value: f64| std::time::Duration::try_from_secs_f64(value).unwrap_or_default();
        Ok(Some(Origin {
            status: ExecutionStatus::parse(&row.status)
                .ok_or_else(|| StoreError::Corrupt(format!("status `{}` is unknown", row.status)))?,
            failure_code: row.failure_code,
            last_step: row.last_step,
            overrides: match row.overrides {
                Some(text) => serde_json::from_str(&text)
                    .map_err(|error| StoreError::Corrupt(format!("the overrides of an execution: {error}")))?,
                None => AgentOverrides::default(),
            },
            execution: NewExecution {
                id: self.new_execution_id().await?,
                tenant_id: tenant,
                definition_key: row.definition_key,
                definition_version_id: row.definition_version_id.into(),
                agent_key: row.agent_key,
                agent_version_id: row.agent_version_id.into(),
                queue: row.queue,
                serve_key: ServeKey(row.serve_key),
                priority: row.priority,
                metadata: row.metadata,
                input: row.input,
                run_at: None,
                deadline: seconds(row.deadline),
                deadline_is_near: false,
                active_timeout: seconds(row.active_timeout),
                retry_of: None,
                submitted_by: None,
                traceparent: None,
                idempotency: None,
                budget: None,
                overrides: None,
            },
        }))
    }

    /// Stores a retry of `origin`, which is FAILED, with a copy of its journal's prefix in the same statement, so that no worker
    /// can see the one without the other.
    ///
    /// The prefix is every live step; when a validator refused the last answer, only those before the turn that gave it. The
    /// copies keep their numbers, are of attempt 0, and count no spent step before them, because none is copied. Messages
    /// live with their execution, so those that the prefix appended are copied too (core-rules 14).
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable.
    pub async fn submit_retry(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        failure_code: &str,
        from: Continue,
    ) -> Result<Submitted, StoreError> {
        let copy = Copy {
            takes_journal: from == Continue::FromJournal,
            drops_answer: last_answer_failed(failure_code),
            fork: None,
            release: None,
        };
        self.submit_copy(origin, execution, copy).await
    }

    /// Stores a fork of `origin`, wherever it stands, with a copy of its journal before a step. What had begun there and had no
    /// result yet is not shared.
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable.
    pub async fn submit_fork(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        fork: &Fork,
    ) -> Result<Submitted, StoreError> {
        self.submit_copy(
            origin,
            execution,
            Copy { takes_journal: true, drops_answer: false, fork: Some(fork), release: None },
        )
        .await
    }

    /// Stores the retry that releases a quarantined execution. False when it was released, withdrawn or overdue meanwhile, or its
    /// group does not stand as `release` needs it.
    pub(super) async fn submit_release(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        release: Release,
    ) -> Result<bool, StoreError> {
        let copy = Copy { takes_journal: true, drops_answer: false, fork: None, release: Some(release) };
        self.copy(origin, execution, copy).await
    }

    async fn submit_copy(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        copy: Copy<'_>,
    ) -> Result<Submitted, StoreError> {
        if self.copy(origin, execution, copy).await? {
            return Ok(Submitted::Created(execution.id));
        }
        // Another request holds the key, or this one was stored by a try whose answer was lost.
        let Some(own) = &execution.idempotency else { return Ok(Submitted::Created(execution.id)) };
        let held = sqlx::query!(
            "select execution_id, request_hash from idempotency_keys where tenant_id = $1 and key = $2",
            execution.tenant_id.0,
            own.key,
        )
        .fetch_one(&self.pool)
        .await?;
        let id = ExecutionId(held.execution_id);
        Ok(if held.request_hash != own.request_hash { Submitted::KeyReused(id) } else { Submitted::Existing(id) })
    }

    /// Whether this statement stored it.
    async fn copy(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        Copy { takes_journal, drops_answer, fork, release }: Copy<'_>,
    ) -> Result<bool, StoreError> {
        let overrides = fork.and_then(|fork| fork.overrides.as_ref()).map(serde_json::to_string).transpose();
        let overrides = overrides.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let caps = execution.budget.as_ref().map(Caps::from).unwrap_or_default();
        let created = sqlx::query_file!(
            "src/store/sql/copy.sql",
            execution.id.0,
            execution.tenant_id.0,
            origin.0,
            execution.definition_version_id.0,
            execution.agent_version_id.0,
            execution.serve_key.0,
            execution.deadline.as_secs_f64(),
            execution.deadline_is_near,
            execution.active_timeout.as_secs_f64(),
            execution.submitted_by.map(|id| id.0),
            execution.traceparent,
            execution.idempotency.as_ref().map(|own| own.key.clone()),
            execution.idempotency.as_ref().map(|own| own.request_hash.clone()),
            takes_journal,
            drops_answer,
            execution.agent_key,
            fork.map(|fork| fork.before),
            fork.and_then(|fork| fork.input.clone()),
            overrides,
            fork.is_some_and(|fork| fork.has_new_prompt),
            execution.budget.as_ref().map(|budget| budget.on_exhausted.as_str()),
            caps.max_cost.map(Usd::nanos),
            caps.max_tokens,
            caps.max_calls,
            release.map(Release::as_str),
        )
        .fetch_optional(&self.pool)
        .await?;
        metrics::executions_submitted(created.is_some().into());
        Ok(created.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_a_validator_refused_is_not_replayed() {
        for code in ["validation_failed", "max_retries_exceeded", "INVOICE_WITHOUT_TOTAL"] {
            assert!(last_answer_failed(code), "{code}");
        }
        for code in ["model_timeout", "cancelled", "deadline_exceeded", "crash_loop"] {
            assert!(!last_answer_failed(code), "{code}");
        }
    }
}
