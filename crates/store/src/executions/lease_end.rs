//! The end of a lease as its worker asks for it, its row in the statement, and what became of the execution.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longhaul_sdk::failure::{Failure, FailureClass, FailureCode};
use longhaul_shared::domain::{ExecutionId, ExecutionStatus, LeaseToken, ProjectId, WaitReason};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    fleet::maintenance::Runnable,
    history::journal::{JournalWrite, WriteRow, storable},
};

/// End of a lease.
#[derive(Debug, Clone, PartialEq)]
pub enum Conclusion {
    /// FINISHED, with the exact JSON text of the output.
    Finish {
        output: String,
    },
    Fail {
        failure: Failure,
    },
    /// FAILED, permanently, by a verdict of the definition.
    Refuse {
        code: FailureCode,
        /// Summary of the failure.
        summary: Option<String>,
        /// The last refusal of an answer: `validator` and `feedback`.
        detail: Option<Value>,
    },
    /// Parked until the backoff is over.
    Retry {
        /// The cause of this attempt's end.
        failure: Failure,
        /// Backoff.
        delay: Duration,
        /// Wake counter, read before the decision.
        wake_seq: i32,
    },
    /// Parked until a tool server may be called again; no retry spent.
    Reconnect {
        /// The cause of this attempt's end.
        failure: Failure,
        /// Backoff.
        delay: Duration,
        /// Wake counter, read before the decision.
        wake_seq: i32,
    },
    /// Parked for another reason.
    Park {
        reason: WaitReason,
        /// Maximum wait; `None` for the execution's deadline.
        wait: Option<Duration>,
        /// Wake counter, read before the condition was checked.
        wake_seq: i32,
    },
    /// FAILED `cancelled`.
    Cancel,
    /// Runnable again at once; no retry spent.
    Release {
        /// True if the worker is draining.
        drained: bool,
    },
}

/// Maximum bytes of an output, limited by the size of a batch statement.
pub const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// A conclusion with its lease.
#[derive(Debug, Clone)]
pub struct LeaseEnd {
    pub id: ExecutionId,
    pub token: LeaseToken,
    /// Attempt number.
    pub attempt: i32,
    pub conclusion: Conclusion,
    /// The last write under the lease, committed together with the end.
    pub write: Option<Arc<JournalWrite>>,
}

impl LeaseEnd {
    /// Approximate bytes in a statement.
    pub(crate) fn bytes(&self) -> usize {
        let output = match &self.conclusion {
            Conclusion::Finish { output } => output.len(),
            Conclusion::Fail { .. }
            | Conclusion::Refuse { .. }
            | Conclusion::Retry { .. }
            | Conclusion::Reconnect { .. }
            | Conclusion::Park { .. }
            | Conclusion::Cancel
            | Conclusion::Release { .. } => 0,
        };
        output + self.write.as_ref().map_or(0, |write| write.bytes())
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
    /// Its project, which may have tasks to start now; `None` if an earlier write ended the lease.
    pub project: Option<ProjectId>,
    /// Tokens of all attempts.
    pub tokens: i64,
    /// Executions that got the slots freed by this end, and perhaps by others of its batch.
    pub woken: Vec<Runnable>,
}

/// The end of a lease, and the keys of concurrency limits whose slots it may have cleared.
pub(crate) type EndedLease = (Concluded, BTreeSet<String>);

/// A row of the type `lease_end`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "lease_end")]
pub(super) struct EndRow {
    execution_id: Uuid,
    token: Uuid,
    verb: String,
    outcome: String,
    output: Option<String>,
    failure_class: Option<String>,
    failure_code: Option<String>,
    failure_summary: Option<String>,
    failure_detail: Option<String>,
    wait_reason: Option<String>,
    wait_seconds: Option<f64>,
    wake_seq: i32,
    write: Option<WriteRow>,
}

impl From<&LeaseEnd> for EndRow {
    fn from(end: &LeaseEnd) -> Self {
        let row = |verb: &str, outcome: &str| Self {
            execution_id: end.id.0,
            token: end.token.0,
            verb: verb.to_owned(),
            outcome: outcome.to_owned(),
            output: None,
            failure_class: None,
            failure_code: None,
            failure_summary: None,
            failure_detail: None,
            wait_reason: None,
            wait_seconds: None,
            wake_seq: 0,
            write: end.write.as_deref().map(WriteRow::from),
        };
        match &end.conclusion {
            Conclusion::Finish { output } => Self { output: Some(output.clone()), ..row("finish", "finished") },
            Conclusion::Fail { failure } => row("fail", "failed").because(failure),
            Conclusion::Refuse { code, summary, detail } => Self {
                failure_class: Some(FailureClass::Permanent.as_str().to_owned()),
                failure_code: Some(code.to_string()),
                failure_summary: summary.as_deref().map(storable),
                failure_detail: detail.as_ref().map(Value::to_string),
                ..row("fail", "failed")
            },
            Conclusion::Retry { failure, delay, wake_seq } => {
                row("park", "retrying").because(failure).waits(WaitReason::RetryBackoff, Some(*delay), *wake_seq)
            }
            Conclusion::Reconnect { failure, delay, wake_seq } => {
                row("park", "parked").because(failure).waits(WaitReason::RetryBackoff, Some(*delay), *wake_seq)
            }
            Conclusion::Park { reason, wait, wake_seq } => row("park", "parked").waits(*reason, *wait, *wake_seq),
            Conclusion::Cancel => {
                let failure = Failure::permanent(FailureCode::CANCELLED, "cancelled on request");
                row("fail", "cancelled").because(&failure)
            }
            Conclusion::Release { drained: true } => row("release", "drained"),
            Conclusion::Release { drained: false } => row("release", "released"),
        }
    }
}

impl EndRow {
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
