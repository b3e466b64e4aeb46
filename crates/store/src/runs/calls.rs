//! Requests of a run: each is answered from the record, or by a new execution.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, FileId, RunId, RunStatus, TenantId};
use longhaul_telemetry::metrics;
use sha2::{Digest, Sha256};
use sqlx::PgExecutor;
use strum::IntoStaticStr;
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::submit::{NewExecution, insert_within},
    files::attach,
};

/// Most recorded calls of a run.
pub const MAX_CALLS: i32 = 20_000;
/// Most attempts of a run.
pub const MAX_ATTEMPTS: i32 = 1_000;
/// Most contents that the attempts of a run have asked for, summed over the attempts.
pub const MAX_POSITIONS: i32 = 200_000;
/// Most looks at a run whose state changes between two of them.
const TRIES: usize = 5;

/// A request for a call of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunRequest<'a> {
    pub run: RunId,
    /// Process that asks, of 1 to 100 characters.
    pub attempt: &'a str,
    /// SHA-256 of the request.
    pub content: [u8; 32],
    /// Name of the step; it identifies the call in the place of the content.
    pub step: Option<&'a str>,
    /// True if the client repeats its request by itself: that is never a new occurrence.
    pub is_retry: bool,
}

impl RunRequest<'_> {
    /// Identity of the call among the calls of its run, but for the occurrence.
    fn identity(&self) -> [u8; 32] {
        match self.step {
            None => self.content,
            Some(step) => Sha256::new().chain_update(b"step\0").chain_update(step).finalize().into(),
        }
    }

    fn row(&self, tenant: TenantId) -> RequestRow {
        RequestRow {
            run_id: self.run.0,
            tenant_id: tenant.0,
            attempt: self.attempt.to_owned(),
            content: self.identity().to_vec(),
            step: self.step.map(str::to_owned),
            is_retry: self.is_retry,
        }
    }
}

/// A row of the type `run_request`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "run_request")]
struct RequestRow {
    run_id: Uuid,
    tenant_id: Uuid,
    attempt: String,
    content: Vec<u8>,
    step: Option<String>,
    is_retry: bool,
}

/// Answer to a request of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAnswer {
    /// The execution was stored, and needs a wake-up.
    New { execution: ExecutionId, occurrence: i32, created_at: DateTime<Utc> },
    /// A recorded execution answers it, which may be under way. `is_new_to_attempt` is true the first time that the
    /// attempt is handed it.
    Known { execution: ExecutionId, occurrence: i32, is_new_to_attempt: bool },
    /// An upload that the execution names is gone; nothing was stored.
    FileGone,
    /// The run has ended; nothing was stored.
    Ended(RunStatus),
    /// The run's deadline has passed; nothing was stored.
    DeadlinePassed,
    /// The run has as many as it may; nothing was stored.
    TooMany(RunLimit),
}

/// Limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RunLimit {
    /// [`MAX_CALLS`].
    Calls,
    /// [`MAX_ATTEMPTS`].
    Attempts,
    /// [`MAX_POSITIONS`].
    Positions,
}

impl RunLimit {
    /// Name in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    #[must_use]
    pub fn most(self) -> i32 {
        match self {
            Self::Calls => MAX_CALLS,
            Self::Attempts => MAX_ATTEMPTS,
            Self::Positions => MAX_POSITIONS,
        }
    }
}

/// The database's answer to a request.
enum Told {
    Settled(RunAnswer),
    /// An execution is needed, or was recorded; the run lives for so long.
    New {
        occurrence: i32,
        left: Duration,
    },
}

impl Store {
    /// Answers a request of a run from the record, or stores `execution`, which then answers it: with the run's budget,
    /// if it has one, and no longer than the run. Two requests for the same call at once get the same execution.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: the execution's tenant has no such run. Otherwise Postgres refused a value, or is
    /// unavailable: nothing was stored.
    pub async fn begin_run_call(
        &self,
        request: &RunRequest<'_>,
        execution: &NewExecution,
    ) -> Result<RunAnswer, StoreError> {
        self.begin_run_call_with_files(request, (execution, &[])).await
    }

    /// As [`Self::begin_run_call`], with the uploads that the execution's messages name.
    ///
    /// # Errors
    /// As those of [`Self::begin_run_call`].
    pub async fn begin_run_call_with_files(
        &self,
        request: &RunRequest<'_>,
        (execution, files): (&NewExecution, &[FileId]),
    ) -> Result<RunAnswer, StoreError> {
        let row = request.row(execution.tenant_id);
        for _ in 0..TRIES {
            let left = match ask(&self.pool, &row, None).await? {
                Told::Settled(answer) => return Ok(answer),
                Told::New { left, .. } => left,
            };
            let mut transaction = self.pool.begin().await?;
            let stored = insert_within(&mut transaction, execution, left).await?;
            let Some(stored) = stored else {
                return Err(StoreError::Conflict("an execution of the same id exists".into()));
            };
            let occurrence = match ask(&mut *transaction, &row, Some(execution.id)).await? {
                Told::New { occurrence, .. } => occurrence,
                Told::Settled(answer) => {
                    transaction.rollback().await?;
                    if matches!(answer, RunAnswer::Known { .. }) {
                        // Another request was faster. What it recorded is handed out without this execution.
                        continue;
                    }
                    return Ok(answer);
                }
            };
            if !attach(&mut transaction, (execution.tenant_id, execution.id, None), files).await? {
                transaction.rollback().await?;
                return Ok(RunAnswer::FileGone);
            }
            transaction.commit().await?;
            self.clock.observe(stored.created_at);
            metrics::executions_submitted(1);
            return Ok(RunAnswer::New { execution: execution.id, occurrence, created_at: stored.created_at });
        }
        Err(StoreError::Conflict("the calls of the run changed too often".into()))
    }

    /// Records whether the answer of this occurrence was delivered to the attempt, to its last byte. Ignored if the
    /// attempt stands at another occurrence.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn run_call_delivered(
        &self,
        request: &RunRequest<'_>,
        occurrence: i32,
        is_delivered: bool,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "update run_attempts set is_delivered = $5 \
             where run_id = $1 and attempt = $2 and content = $3 and occurrence = $4 and is_delivered <> $5",
            request.run.0,
            request.attempt,
            &request.identity()[..],
            occurrence,
            is_delivered,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

async fn ask(
    connection: impl PgExecutor<'_>,
    request: &RequestRow,
    execution: Option<ExecutionId>,
) -> Result<Told, StoreError> {
    let told = sqlx::query!(
        r#"
        select verdict as "verdict!", occurrence as "occurrence!", execution_id,
            is_new_to_attempt as "is_new_to_attempt!", status as "status!: RunStatus", seconds_left as "seconds_left!"
        from longhaul_begin_run_call($1, $2, $3, $4, $5)
        "#,
        request as _,
        execution.map(|id| id.0) as Option<Uuid>,
        MAX_CALLS,
        MAX_ATTEMPTS,
        MAX_POSITIONS,
    )
    .fetch_optional(connection)
    .await?
    .ok_or(StoreError::NotFound("run"))?;
    Ok(Told::Settled(match (told.verdict.as_str(), told.execution_id) {
        ("new", _) => {
            let left = Duration::try_from_secs_f64(told.seconds_left).unwrap_or_default();
            return Ok(Told::New { occurrence: told.occurrence, left });
        }
        ("known", Some(id)) => RunAnswer::Known {
            execution: ExecutionId(id),
            occurrence: told.occurrence,
            is_new_to_attempt: told.is_new_to_attempt,
        },
        ("ended", _) => RunAnswer::Ended(told.status),
        ("deadline_passed", _) => RunAnswer::DeadlinePassed,
        ("too_many_calls", _) => RunAnswer::TooMany(RunLimit::Calls),
        ("too_many_attempts", _) => RunAnswer::TooMany(RunLimit::Attempts),
        ("too_many_positions", _) => RunAnswer::TooMany(RunLimit::Positions),
        (other, _) => return Err(StoreError::Corrupt(format!("verdict `{other}` is unknown"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_takes_the_place_of_its_content() {
        let request =
            |content, step| RunRequest { run: RunId(Uuid::nil()), attempt: "a", content, step, is_retry: false };
        assert_eq!(request([1; 32], None).identity(), [1; 32]);
        assert_eq!(request([1; 32], Some("plan")).identity(), request([2; 32], Some("plan")).identity());
        assert_ne!(request([1; 32], Some("plan")).identity(), request([1; 32], Some("write")).identity());
    }
}
