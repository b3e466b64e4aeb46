//! Operations of people on executions: cancel, retry and fork.

use longhaul_sdk::{
    failure::{FailureClass, FailureCode},
    spec::AgentOverrides,
};
use strum::IntoStaticStr;
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::{
        planned::Pinned,
        submit::{NewExecution, SubmissionRow, Submitted},
    },
};
use longhaul_domain::{ApiKeyId, ExecutionId, ExecutionStatus, ServeKey, TenantId};
use longhaul_telemetry::metrics;

/// Repeats of a cancel after a deadlock with a wake of the same tree.
const CANCEL_REPEATS: usize = 3;

/// Result of a request to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// No worker held it: it is now FAILED `cancelled`.
    Ended,
    /// A worker holds it and was told; asking again changes nothing.
    Requested,
    /// It had ended FAILED `cancelled`: an earlier request, whose answer may have been lost, did the same.
    Before,
    /// It was already over.
    AlreadyOver(ExecutionStatus),
    /// There is no such execution of this tenant.
    NotFound,
}

/// Part of the origin's journal that a retry takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continue {
    /// The journal up to the failing step: answered calls are not asked again.
    FromJournal,
    /// Nothing.
    FromScratch,
}

/// Differences of a fork from its origin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fork {
    /// First step that is not shared.
    pub before: i32,
    /// Exact JSON text of another input.
    pub input: Option<String>,
    /// Deviations from its agent, if they differ from the origin's.
    pub overrides: Option<AgentOverrides>,
    /// True if the prompt is rendered anew.
    pub has_new_prompt: bool,
}

/// Facts about its origin that a retry or a fork needs.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Only a FAILED execution can be retried; any can be forked.
    pub status: ExecutionStatus,
    /// True if its texts were erased: it can be neither retried nor forked.
    pub is_erased: bool,
    pub failure_code: Option<String>,
    /// Number of the last recorded step; 0 if none was recorded or none is kept.
    pub last_step: i32,
    /// Deviations from its agent.
    pub overrides: AgentOverrides,
    /// The same submit with a new id.
    pub execution: NewExecution,
}

/// Returns true if the last answer must not be replayed: a validator refused it, and a replay would fail again
/// without a new model call. A step that failed by itself is already spent (core-rules 6).
fn last_answer_failed(failure_code: &str) -> bool {
    let by_validator = [FailureCode::VALIDATION_FAILED, FailureCode::MAX_RETRIES_EXCEEDED];
    let is_built_in = FailureCode::BUILT_IN.iter().any(|code| code.as_str() == failure_code);
    // A code that is not built in is one of the definition's, and only validators use those.
    !is_built_in || by_validator.iter().any(|code| code.as_str() == failure_code)
}

/// Kind of release from quarantine (docs/design/quarantine.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Release {
    /// The first of its group, on a build that the group has not killed.
    Canary,
    /// The first of its group, on a person's decision.
    Manual,
    /// One of the others, after the canary passed.
    Rest,
}

/// Part of another execution's journal.
#[derive(Clone, Copy, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum JournalPart {
    None,
    All,
    /// All before the answer that validators refused.
    Accepted,
}

/// Parts of another execution that a new one takes over.
struct Source<'a> {
    journal: JournalPart,
    fork: Option<&'a Fork>,
    release: Option<Release>,
}

/// Most levels of origins and parents that are followed.
const MAX_LINE: i32 = 100;

impl Store {
    /// Keys of the people who wrote what `id` does: those with which it, its origins (of retries and forks) and its
    /// parents were submitted, those that wrote its schedule, or its project's plan, and the keys that replaced these
    /// or were replaced by them; with authors, also those that put the versions of its agent, definition and skills.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn submitters_of(&self, id: ExecutionId, with_authors: bool) -> Result<Vec<ApiKeyId>, StoreError> {
        let keys = sqlx::query_scalar!(
            r#"
            with recursive line as (
                select e.id, e.submitted_by, e.retry_of, e.forked_from, e.parent_id, e.agent_version_id,
                    e.definition_version_id, 1 as place
                from executions e where e.id = $1
                union
                select o.id, o.submitted_by, o.retry_of, o.forked_from, o.parent_id, o.agent_version_id,
                    o.definition_version_id, l.place + 1
                from line l join executions o on o.id = any (array[l.retry_of, l.forked_from, l.parent_id])
                where l.place < $2
            ),
            holders (key) as (
                (
                    select submitted_by from line where submitted_by is not null
                    union
                    select unnest(p.authors) from line join execution_payloads p on p.execution_id = line.id
                    union
                    select v.written_by from line join agent_versions v on v.id = line.agent_version_id where $3
                    union
                    select v.written_by from line join definition_versions v on v.id = line.definition_version_id
                    where $3
                    union
                    select s.written_by
                    from line join agent_versions v on v.id = line.agent_version_id
                    join skill_versions s on s.id = any (v.skill_version_ids) where $3
                )
                union
                select other.id
                from holders join api_keys k on k.id = holders.key
                    join api_keys other on other.id = k.replaced_by or other.replaced_by = k.id
            )
            select distinct key as "key!" from holders where key is not null
            "#,
            id.0,
            MAX_LINE,
            with_authors,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(keys.into_iter().map(ApiKeyId).collect())
    }

    /// Cancels an execution: one that no worker holds ends at once; a held one gets the flag, and its worker ends
    /// it (core-rules 17). Idempotent.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn cancel_execution(&self, tenant: TenantId, id: ExecutionId) -> Result<Cancelled, StoreError> {
        let cancelled = self.cancel_patiently(&[id.0], tenant, "cancelled by the caller").await?;
        if let Some((_, has_ended)) = cancelled.first() {
            return Ok(if *has_ended { Cancelled::Ended } else { Cancelled::Requested });
        }
        let standing = sqlx::query!(
            r#"
            select status::text as "status!: ExecutionStatus", failure_code from executions
            where id = $1 and tenant_id = $2
            "#,
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
            // It stays as it is, and can no longer be released.
            self.withdraw_quarantined(tenant, id).await?;
        }
        Ok(match standing.status {
            status @ (ExecutionStatus::Finished | ExecutionStatus::Failed) => Cancelled::AlreadyOver(status),
            ExecutionStatus::Pending | ExecutionStatus::InProgress => Cancelled::Requested,
        })
    }

    /// Cancels executions of a tenant that are not over, and returns for each if it ended. A wake of the tree may hold
    /// the parent and want a row, while the cancel holds this row and wants the parent.
    pub(crate) async fn cancel_patiently(
        &self,
        ids: &[Uuid],
        tenant: TenantId,
        summary: &str,
    ) -> Result<Vec<(ExecutionId, bool)>, StoreError> {
        let cancel = || self.cancel_rows(ids, Some(tenant), summary);
        let mut cancelled = cancel().await;
        for _ in 0..CANCEL_REPEATS {
            if !cancelled.as_ref().is_err_and(StoreError::is_deadlock) {
                break;
            }
            cancelled = cancel().await;
        }
        cancelled
    }

    /// Cancels executions that are not over, and returns for each if it ended. Without a `tenant`: because their
    /// parents end.
    pub(crate) async fn cancel_rows(
        &self,
        ids: &[Uuid],
        tenant: Option<TenantId>,
        summary: &str,
    ) -> Result<Vec<(ExecutionId, bool)>, StoreError> {
        let tenant = tenant.map(|tenant| tenant.0);
        let rows =
            sqlx::query_file!("src/sql/cancel.sql", ids, tenant as Option<Uuid>, summary).fetch_all(&self.pool).await?;
        let cancelled: Vec<(ExecutionId, bool)> =
            rows.into_iter().map(|row| (ExecutionId(row.id), row.ended)).collect();
        metrics::executions_ended(Some(FailureClass::Permanent), cancelled.iter().filter(|(_, ended)| *ended).count());
        Ok(cancelled)
    }

    /// The origin of a retry or a fork, as a new submit of the same; `None` if this tenant has none.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn read_origin(&self, tenant: TenantId, id: ExecutionId) -> Result<Option<Origin>, StoreError> {
        let row = sqlx::query!(
            r#"
            select e.definition_key, e.definition_version_id, e.agent_key, e.agent_version_id, e.queue, e.serve_key,
                e.priority,
                e.metadata, e.status::text as "status!: ExecutionStatus", e.failure_code, p.input::text as "input!",
                p.overrides::text as overrides, p.erased_at is not null as "is_erased!",
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
        let pinned = Pinned {
            definition_key: row.definition_key,
            definition_version_id: row.definition_version_id.into(),
            agent_key: row.agent_key,
            agent_version_id: row.agent_version_id.into(),
            serve_key: ServeKey(row.serve_key),
            deadline: seconds(row.deadline),
            active_timeout: seconds(row.active_timeout),
            budget: None,
        };
        Ok(Some(Origin {
            status: row.status,
            is_erased: row.is_erased,
            failure_code: row.failure_code,
            last_step: row.last_step,
            overrides: match row.overrides {
                Some(text) => serde_json::from_str(&text)
                    .map_err(|error| StoreError::Corrupt(format!("the overrides of an execution: {error}")))?,
                None => AgentOverrides::default(),
            },
            execution: NewExecution {
                queue: row.queue,
                priority: row.priority,
                metadata: row.metadata,
                ..NewExecution::of(self.new_execution_id().await?, tenant, pinned, row.input)
            },
        }))
    }

    /// Stores a retry of `origin`, which is FAILED, with a copy of its journal's prefix in the same statement, so
    /// that no worker can see the one without the other.
    ///
    /// The prefix is every live step; if a validator refused the last answer, only the steps before the turn that
    /// gave it. The copies keep their numbers, have attempt 0, and have occurrence 0, because no spent step is
    /// copied. Messages live with their execution, so those that the prefix appended are copied too (core-rules
    /// 14).
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
        let journal = match from {
            Continue::FromJournal if last_answer_failed(failure_code) => JournalPart::Accepted,
            Continue::FromJournal => JournalPart::All,
            Continue::FromScratch => JournalPart::None,
        };
        self.submit_copy(origin, execution, Source { journal, fork: None, release: None }).await
    }

    /// Stores a fork of `origin`, in whatever state it is, with a copy of its journal before a step. Steps that
    /// had begun and had no result are not copied.
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable.
    pub async fn submit_fork(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        fork: &Fork,
    ) -> Result<Submitted, StoreError> {
        let source = Source { journal: JournalPart::All, fork: Some(fork), release: None };
        self.submit_copy(origin, execution, source).await
    }

    /// Stores the retry that releases a quarantined execution. Returns false if it was released, withdrawn or
    /// overdue meanwhile, or its group is not in the state that `release` needs.
    pub(crate) async fn submit_release(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        release: Release,
    ) -> Result<bool, StoreError> {
        let source = Source { journal: JournalPart::All, fork: None, release: Some(release) };
        self.copy(origin, execution, source).await
    }

    async fn submit_copy(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        source: Source<'_>,
    ) -> Result<Submitted, StoreError> {
        if self.copy(origin, execution, source).await? {
            return Ok(Submitted::Created(execution.id));
        }
        // Another request holds the key, or an earlier try whose answer was lost stored this one.
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

    /// Returns true if this statement stored the execution.
    async fn copy(
        &self,
        origin: ExecutionId,
        execution: &NewExecution,
        Source { journal, fork, release }: Source<'_>,
    ) -> Result<bool, StoreError> {
        let overrides = fork.and_then(|fork| fork.overrides.as_ref()).map(serde_json::to_string).transpose();
        let overrides = overrides.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let created = sqlx::query_file!(
            "src/sql/copy.sql",
            SubmissionRow::from(execution) as _,
            origin.0,
            <&str>::from(journal),
            fork.map(|fork| fork.before),
            fork.and_then(|fork| fork.input.clone()),
            overrides,
            fork.is_some_and(|fork| fork.has_new_prompt),
            release.map(<&str>::from),
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
    fn refused_answer_is_not_replayed_by_a_retry() {
        for code in ["validation_failed", "max_retries_exceeded", "INVOICE_WITHOUT_TOTAL"] {
            assert!(last_answer_failed(code), "{code}");
        }
        for code in ["model_timeout", "cancelled", "deadline_exceeded", "crash_loop"] {
            assert!(!last_answer_failed(code), "{code}");
        }
    }
}
