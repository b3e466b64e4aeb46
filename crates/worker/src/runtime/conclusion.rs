//! The end of one attempt: a pure decision (`domain::decision`), written once, then announced.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use longhaul_agent::{
    journal::{Journal, Parked, fold_budget},
    probe::Point,
};
use longhaul_sdk::{ExecutionResult, Failure, FailureClass, FailureCode, Interrupt, Step, StepError};
use longhaul_shared::{
    domain::{Decision, ExecutionStatus, RetryPolicy, WaitReason, decide},
    telemetry::{metrics, trace},
};
use longhaul_store::{
    StoreError,
    claims::Claimed,
    journal::JournalWrite,
    outcomes::{Concluded, Conclusion, LeaseEnd, MAX_OUTPUT_BYTES},
};
use serde_json::Value;
use tracing::Span;

use super::{attempt::between, maintenance::announce};
use crate::deps::AttemptDeps;

/// Outcome of an attempt, with the journal if it was restored, and the retry policy.
pub(super) type AttemptEnd = (Step<ExecutionResult>, Option<Box<Journal>>, RetryPolicy);

/// Decides the execution's next state and commits it. Returns the tokens of this attempt, as far as they are
/// known.
pub(super) async fn conclude(claimed: &Claimed, ended: AttemptEnd, started: Instant, deps: &AttemptDeps) -> i64 {
    let (outcome, journal, policy) = ended;
    let Settled { outcome, write, wake_seq, parked, server, complaint } = settle(outcome, journal, claimed).await;
    deps.shared.probe.at(Point::BeforeConclusion, claimed.id).await;
    let decision = decide(outcome, &policy, claimed.retries, claimed.token.chance());
    let conclusion = match decision {
        Decision::Finish(output) => finish(output.to_string()),
        Decision::Fail(failure) => Conclusion::Fail { failure },
        Decision::Refuse { code, summary } => Conclusion::Refuse { code, summary, detail: complaint },
        Decision::Retry { failure, delay } => Conclusion::Retry { failure, delay, wake_seq },
        Decision::Park => match server {
            // A wake of the execution's other wait ends this wait too.
            Some((failure, delay)) => {
                Conclusion::Reconnect { failure, delay, wake_seq: parked.map_or(wake_seq, |parked| parked.wake_seq) }
            }
            None => park(claimed, started.elapsed(), parked),
        },
        Decision::Cancel => Conclusion::Cancel,
        Decision::Release => Conclusion::Release { drained: true },
        Decision::Abandon => {
            metrics::lease_lost();
            tracing::warn!("attempt abandoned: its lease belongs to another");
            return 0;
        }
    };
    match end_lease(claimed, conclusion, write, deps).await {
        Ok((noted, concluded)) => {
            note_end(&noted, concluded.status);
            tell(claimed, &concluded, deps).await;
            concluded.tokens - claimed.tokens
        }
        Err(error) => {
            metrics::lease_lost();
            tracing::warn!(error = %error, "the end of the attempt was not accepted");
            0
        }
    }
}

/// An attempt whose journal is committed, or ready to be committed with the end of its lease.
struct Settled {
    outcome: Step<ExecutionResult>,
    /// Last write of a run that ended by itself.
    write: Option<Arc<JournalWrite>>,
    wake_seq: i32,
    parked: Option<Parked>,
    server: Option<(Failure, Duration)>,
    complaint: Option<Value>,
}

/// Commits the rest of the journal. The last write of a successful run is left to the statement that ends the
/// lease (docs/adr/0041-one-commit-ends-a-run.md); the commit may change any other outcome.
async fn settle(mut outcome: Step<ExecutionResult>, journal: Option<Box<Journal>>, claimed: &Claimed) -> Settled {
    let Some(mut journal) = journal else {
        let wake_seq = claimed.wake_seq;
        return Settled { outcome, write: None, wake_seq, parked: None, server: None, complaint: None };
    };
    if let Some(reason) = aborted(&outcome)
        && let Err(error) = journal.answer_open_calls(reason)
    {
        outcome = merge(outcome, error);
    }
    let mut write = None;
    // A lost lease can write nothing.
    if outcome != Err(StepError::Interrupt(Interrupt::LeaseLost)) {
        let committed = if outcome.is_ok() {
            journal.last_write().await.map(|last| write = last.map(Arc::new))
        } else {
            journal.flush().await
        };
        if let Err(error) = committed {
            outcome = merge(outcome, error);
        }
    }
    let (wake_seq, parked, server) = (journal.wake_seq(), journal.parked(), journal.server_wait());
    Settled { outcome, write, wake_seq, parked, server, complaint: journal.complaint().cloned() }
}

/// Ends the lease together with its last write. Returns the accepted conclusion without its output, which may be
/// large.
async fn end_lease(
    claimed: &Claimed,
    conclusion: Conclusion,
    write: Option<Arc<JournalWrite>>,
    deps: &AttemptDeps,
) -> Result<(Conclusion, Concluded), StoreError> {
    let end = |conclusion, write| {
        let (id, token, attempt) = (claimed.id, claimed.token, claimed.attempt);
        deps.writer.conclude(LeaseEnd { id, token, attempt, conclusion, write })
    };
    let is_finish = matches!(conclusion, Conclusion::Finish { .. });
    let noted = if is_finish { Conclusion::Finish { output: String::new() } } else { conclusion.clone() };
    match end(conclusion, write.clone()).await {
        Err(StoreError::Rejected(error)) => {
            // A repeated attempt would fail here again, without end.
            tracing::error!(error = %error, "the store refused the end of an attempt");
            if let Some(write) = write
                && let Err(error) = deps.writer.record(write).await
            {
                tracing::error!(error = %error, "the store refused the last write of an attempt");
            }
            let failure = Failure::permanent(FailureCode::INTERNAL_ERROR, "the result could not be stored");
            let failed = Conclusion::Fail { failure };
            end(failed.clone(), None).await.map(|concluded| (failed, concluded))
        }
        concluded => concluded.map(|concluded| (noted, concluded)),
    }
}

/// Fails an execution whose output is too large to be stored.
fn finish(output: String) -> Conclusion {
    if output.len() <= MAX_OUTPUT_BYTES {
        return Conclusion::Finish { output };
    }
    let summary = format!("the output is {} bytes long; at most {MAX_OUTPUT_BYTES} are stored", output.len());
    Conclusion::Fail { failure: Failure::permanent(FailureCode::INTERNAL_ERROR, summary) }
}

/// Error text for unanswered calls, if the execution ends with them.
fn aborted(outcome: &Step<ExecutionResult>) -> Option<&'static str> {
    match outcome {
        Err(StepError::Interrupt(Interrupt::DeadlineExceeded)) => Some("the execution ran longer than it may"),
        Err(StepError::Interrupt(Interrupt::Cancelled)) => Some("the execution was cancelled"),
        Err(
            StepError::Interrupt(Interrupt::LeaseLost | Interrupt::Draining | Interrupt::Waiting)
            | StepError::Failed(_),
        )
        | Ok(_) => None,
    }
}

/// Sends wake-ups and event hints. They may be lost: the sweep and the streams find the change without them.
async fn tell(claimed: &Claimed, concluded: &Concluded, deps: &AttemptDeps) {
    let publisher = &deps.shared.publisher;
    publisher.look([claimed.id.0]);
    announce(&deps.shared, &concluded.woken);
    if !concluded.status.is_terminal() {
        publisher.wake(&concluded.queue, claimed.id, concluded.wait_reason);
        return;
    }
    if claimed.session.is_some() {
        // Its session's next message may be runnable now.
        publisher.wake(&concluded.queue, claimed.id, Some(WaitReason::Worker));
    }
    if claimed.has_budget {
        fold_budget(publisher, &deps.writer, claimed.root).await;
    }
    if let Some(parent) = concluded.parent {
        // The parent may be runnable now; otherwise the wake-up has no effect.
        publisher.look([parent.0]);
        publisher.wake(&concluded.queue, parent, Some(WaitReason::Worker));
    }
}

/// A wait from now until an instant of the database's clock: the distance from the claim, minus the time held
/// since.
fn park(claimed: &Claimed, held_for: Duration, parked: Option<Parked>) -> Conclusion {
    // Without a wait the execution is runnable at once.
    let Some(Parked { waiting, wake_seq }) = parked else { return Conclusion::Release { drained: false } };
    let wait = waiting.until.map(|until| between(claimed.claimed_at, until).saturating_sub(held_for));
    Conclusion::Park { reason: waiting.reason, wait, wake_seq }
}

/// An interrupt found while writing replaces a failure. A success is kept on a cancel.
fn merge(outcome: Step<ExecutionResult>, error: StepError) -> Step<ExecutionResult> {
    match (&outcome, &error) {
        (Ok(ExecutionResult::Success { .. }), StepError::Interrupt(Interrupt::Cancelled)) => outcome,
        (_, StepError::Interrupt(_)) | (Ok(_), StepError::Failed(_)) => Err(error),
        (Err(_), StepError::Failed(_)) => outcome,
    }
}

/// Reports the stored status, not the conclusion: a cancel in between ends a retry, a park or a failure.
fn note_end(conclusion: &Conclusion, status: ExecutionStatus) {
    match (status, conclusion) {
        (ExecutionStatus::Finished, _) => {
            metrics::executions_ended(None, 1);
            tracing::info!("execution finished");
        }
        (ExecutionStatus::Failed, Conclusion::Fail { failure, .. }) => {
            trace::fail(&Span::current(), failure.code.as_str());
            metrics::executions_ended(Some(failure.class), 1);
            tracing::info!(failure.class = %failure.class, failure.code = %failure.code, "execution failed");
        }
        (ExecutionStatus::Failed, Conclusion::Refuse { code, .. }) => {
            trace::fail(&Span::current(), code.as_str());
            metrics::executions_ended(Some(FailureClass::Permanent), 1);
            tracing::info!(failure.code = %code, "execution failed");
        }
        (
            ExecutionStatus::Failed,
            Conclusion::Cancel
            | Conclusion::Finish { .. }
            | Conclusion::Retry { .. }
            | Conclusion::Reconnect { .. }
            | Conclusion::Park { .. }
            | Conclusion::Release { .. },
        ) => {
            metrics::executions_ended(Some(FailureClass::Permanent), 1);
            tracing::info!("execution cancelled");
        }
        (ExecutionStatus::Pending | ExecutionStatus::InProgress, Conclusion::Retry { failure, delay, .. }) => {
            trace::fail(&Span::current(), failure.code.as_str());
            metrics::retry_scheduled(failure.class);
            tracing::info!(failure.class = %failure.class, failure.code = %failure.code, delay = ?delay, "attempt will be retried");
        }
        (ExecutionStatus::Pending | ExecutionStatus::InProgress, Conclusion::Reconnect { failure, delay, .. }) => {
            tracing::info!(failure.code = %failure.code, delay = ?delay, "the execution waits for a tool server");
        }
        (ExecutionStatus::Pending | ExecutionStatus::InProgress, Conclusion::Park { reason, .. }) => {
            tracing::info!(wait.reason = %reason, "execution parked");
        }
        (
            ExecutionStatus::Pending | ExecutionStatus::InProgress,
            Conclusion::Finish { .. }
            | Conclusion::Fail { .. }
            | Conclusion::Refuse { .. }
            | Conclusion::Cancel
            | Conclusion::Release { .. },
        ) => tracing::info!("execution handed back"),
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_above_the_limit_fails_with_its_size() {
        assert!(matches!(finish("x".repeat(MAX_OUTPUT_BYTES)), Conclusion::Finish { .. }));
        let Conclusion::Fail { failure, .. } = finish("x".repeat(MAX_OUTPUT_BYTES + 1)) else { panic!("not failed") };
        assert_eq!(failure.code, FailureCode::INTERNAL_ERROR);
        assert!(failure.summary.starts_with("the output is 16777217 bytes long"), "{}", failure.summary);
    }
}
