//! The end of a lease: what a worker decided is the row of the statement that carries it out (`conclude.sql`). What an
//! end does beside that is in `longhaul_execution_over.sql` (docs/design/end.md).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longhaul_domain::{ExecutionId, ExecutionStatus, LeaseToken, WaitReason};
use longhaul_sdk::failure::{Failure, FailureClass, FailureCode};
use serde_json::Value;
use sqlx::{
    Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo},
};
use uuid::Uuid;

use super::claimed::Claimed;
use crate::{
    fleet::maintenance::Runnable,
    history::journal::{JournalWrite, WriteRow, storable},
};

/// Maximum bytes of an output, limited by the size of a batch statement.
pub const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// A lease that its worker ends, by one of the methods below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseKey {
    pub id: ExecutionId,
    pub token: LeaseToken,
}

impl Claimed {
    #[must_use]
    pub fn lease(&self) -> LeaseKey {
        LeaseKey { id: self.id, token: self.token }
    }
}

/// Next state of the execution, unless a cancel or a wake came meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Type)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
enum EndVerb {
    Finish,
    Fail,
    Park,
    Release,
}

/// How the attempt is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Type)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum AttemptOutcome {
    Finished,
    Failed,
    Cancelled,
    Retrying,
    Parked,
    Released,
    /// Its worker shuts down.
    Drained,
}

/// The end of a lease, a row of the type `lease_end`.
#[derive(Debug, Clone, sqlx::Encode)]
#[sqlx(type_name = "lease_end")]
pub struct LeaseEnd {
    execution_id: Uuid,
    token: Uuid,
    verb: EndVerb,
    outcome: AttemptOutcome,
    output: Option<String>,
    failure_class: Option<String>,
    failure_code: Option<String>,
    failure_summary: Option<String>,
    failure_detail: Option<String>,
    wait_reason: Option<String>,
    wait_seconds: Option<f64>,
    wake_seq: i32,
    write: LastWrite,
}

impl Type<Postgres> for LeaseEnd {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("lease_end")
    }
}

impl PgHasArrayType for LeaseEnd {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("lease_end")
    }
}

/// The last write under a lease, committed together with its end.
#[derive(Debug, Clone, Default)]
struct LastWrite(Option<Arc<JournalWrite>>);

impl Type<Postgres> for LastWrite {
    fn type_info() -> PgTypeInfo {
        WriteRow::type_info()
    }
}

impl Encode<'_, Postgres> for LastWrite {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        match self.0.as_deref() {
            Some(write) => WriteRow::from(write).encode_by_ref(buffer),
            None => Ok(IsNull::Yes),
        }
    }
}

impl LeaseKey {
    /// FINISHED, with the exact JSON text of the output. One that is too large to be stored fails the execution.
    #[must_use]
    pub fn finish(self, output: String) -> LeaseEnd {
        if output.len() > MAX_OUTPUT_BYTES {
            let summary = format!("the output is {} bytes long; at most {MAX_OUTPUT_BYTES} are stored", output.len());
            return self.fail(&Failure::permanent(FailureCode::INTERNAL_ERROR, summary));
        }
        LeaseEnd { output: Some(output), ..self.end(EndVerb::Finish, AttemptOutcome::Finished) }
    }

    /// FAILED.
    #[must_use]
    pub fn fail(self, failure: &Failure) -> LeaseEnd {
        self.end(EndVerb::Fail, AttemptOutcome::Failed).because(failure)
    }

    /// FAILED, permanently, by a verdict of the definition. `detail` is the last refusal of an answer.
    #[must_use]
    pub fn refuse(self, code: &FailureCode, summary: Option<&str>, detail: Option<&Value>) -> LeaseEnd {
        LeaseEnd {
            failure_class: Some(FailureClass::Permanent.as_str().to_owned()),
            failure_code: Some(code.to_string()),
            failure_summary: summary.map(storable),
            failure_detail: detail.map(Value::to_string),
            ..self.end(EndVerb::Fail, AttemptOutcome::Failed)
        }
    }

    /// FAILED `cancelled`.
    #[must_use]
    pub fn cancel(self) -> LeaseEnd {
        let failure = Failure::permanent(FailureCode::CANCELLED, "cancelled on request");
        self.end(EndVerb::Fail, AttemptOutcome::Cancelled).because(&failure)
    }

    /// Parked until the backoff is over. `wake_seq` was read before the decision.
    #[must_use]
    pub fn retry(self, failure: &Failure, delay: Duration, wake_seq: i32) -> LeaseEnd {
        let end = self.end(EndVerb::Park, AttemptOutcome::Retrying).because(failure);
        end.waits(WaitReason::RetryBackoff, Some(delay), wake_seq)
    }

    /// Parked until a tool server may be called again; no retry spent.
    #[must_use]
    pub fn reconnect(self, failure: &Failure, delay: Duration, wake_seq: i32) -> LeaseEnd {
        self.park(WaitReason::RetryBackoff, Some(delay), wake_seq).because(failure)
    }

    /// Parked for at most `wait`, or until the execution's deadline. `wake_seq` was read before the condition was
    /// checked (core-rules 3).
    #[must_use]
    pub fn park(self, reason: WaitReason, wait: Option<Duration>, wake_seq: i32) -> LeaseEnd {
        self.end(EndVerb::Park, AttemptOutcome::Parked).waits(reason, wait, wake_seq)
    }

    /// Runnable again at once; no retry spent.
    #[must_use]
    pub fn release(self) -> LeaseEnd {
        self.end(EndVerb::Release, AttemptOutcome::Released)
    }

    /// [`Self::release`] by a worker that shuts down.
    #[must_use]
    pub fn drain(self) -> LeaseEnd {
        self.end(EndVerb::Release, AttemptOutcome::Drained)
    }

    fn end(self, verb: EndVerb, outcome: AttemptOutcome) -> LeaseEnd {
        LeaseEnd {
            execution_id: self.id.0,
            token: self.token.0,
            verb,
            outcome,
            output: None,
            failure_class: None,
            failure_code: None,
            failure_summary: None,
            failure_detail: None,
            wait_reason: None,
            wait_seconds: None,
            wake_seq: 0,
            write: LastWrite::default(),
        }
    }
}

impl LeaseEnd {
    /// Adds the last write under the lease, committed together with the end.
    #[must_use]
    pub fn with(self, write: Option<Arc<JournalWrite>>) -> Self {
        Self { write: LastWrite(write), ..self }
    }

    #[must_use]
    pub fn id(&self) -> ExecutionId {
        ExecutionId(self.execution_id)
    }

    #[must_use]
    pub fn outcome(&self) -> AttemptOutcome {
        self.outcome
    }

    /// Class and code of the failure that it ends with or retries after.
    #[must_use]
    pub fn failure(&self) -> Option<(FailureClass, &str)> {
        FailureClass::parse(self.failure_class.as_deref()?).zip(self.failure_code.as_deref())
    }

    /// Reason and length of the wait that it begins.
    #[must_use]
    pub fn wait(&self) -> Option<(&str, Option<Duration>)> {
        let wait = self.wait_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        self.wait_reason.as_deref().map(|reason| (reason, wait))
    }

    pub(super) fn token(&self) -> LeaseToken {
        LeaseToken(self.token)
    }

    pub(super) fn write(&self) -> Option<&JournalWrite> {
        self.write.0.as_deref()
    }

    /// Approximate bytes in a statement.
    pub(crate) fn bytes(&self) -> usize {
        self.output.as_ref().map_or(0, String::len) + self.write().map_or(0, JournalWrite::bytes)
    }

    fn because(self, failure: &Failure) -> Self {
        Self {
            failure_class: Some(failure.class.as_str().to_owned()),
            failure_code: Some(failure.code.to_string()),
            failure_summary: Some(storable(&failure.summary)),
            failure_detail: failure.detail.as_ref().map(Value::to_string),
            ..self
        }
    }

    fn waits(self, reason: WaitReason, wait: Option<Duration>, wake_seq: i32) -> Self {
        let wait_seconds = wait.map(|wait| wait.as_secs_f64());
        Self { wait_reason: Some(reason.as_str().to_owned()), wait_seconds, wake_seq, ..self }
    }
}

/// State of an execution after its lease ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concluded {
    pub status: ExecutionStatus,
    /// Wait of an execution that has not ended.
    pub wait_reason: Option<WaitReason>,
    pub queue: String,
    /// The parent execution, which runs in the same queue and was woken if this one ended.
    pub parent: Option<ExecutionId>,
    /// True if the end may have left a row in `ends`.
    pub is_followed: bool,
    /// Tokens of all attempts.
    pub tokens: i64,
    /// Executions that got the slots freed by this end, and perhaps by others of its batch.
    pub woken: Vec<Runnable>,
}

/// The end of a lease, and the keys of concurrency limits whose slots it may have cleared.
pub(crate) type EndedLease = (Concluded, BTreeSet<String>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_above_the_limit_fails_with_its_size() {
        let lease = LeaseKey { id: ExecutionId(Uuid::nil()), token: LeaseToken(Uuid::nil()) };
        assert_eq!(lease.finish("x".repeat(MAX_OUTPUT_BYTES)).outcome(), AttemptOutcome::Finished);
        let failed = lease.finish("x".repeat(MAX_OUTPUT_BYTES + 1));
        assert_eq!(failed.failure(), Some((FailureClass::Permanent, FailureCode::INTERNAL_ERROR.as_str())));
        let summary = failed.failure_summary.unwrap_or_default();
        assert!(summary.starts_with("the output is 16777217 bytes long"), "{summary}");
    }
}
