//! The decision at the end of an attempt. A pure function; its caller commits the end that it returns.

use std::time::Duration;

use longhaul_domain::{RetryCounters, RetryPolicy, WaitReason};
use longhaul_sdk::{ExecutionResult, Failure, FailureClass, FailureCode, Interrupt, Step, StepError};
use longhaul_store::executions::outcomes::{LeaseEnd, LeaseKey};
use serde_json::Value;

/// An attempt that has ended, as far as the decision depends on it.
#[derive(Debug)]
pub(super) struct AttemptEnd {
    pub(super) outcome: Step<ExecutionResult>,
    /// Wake counter, read before the attempt ended.
    pub(super) wake_seq: i32,
    /// Wait that the attempt asked for.
    pub(super) wait: Option<Wait>,
    /// Tool server that it waits for: the cause and the delay.
    pub(super) server: Option<(Failure, Duration)>,
    /// Last refusal of an answer: `validator` and `feedback`.
    pub(super) complaint: Option<Value>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) reason: WaitReason,
    /// Maximum wait; `None` for the execution's deadline.
    pub(super) time: Option<Duration>,
    /// Wake counter, read before the condition was checked.
    pub(super) wake_seq: i32,
}

/// Maps an attempt to the end of its lease. `None`: another worker holds the lease, so nothing is written. `had` are
/// the retries before this attempt.
pub(super) fn decide(
    lease: LeaseKey,
    attempt: AttemptEnd,
    policy: &RetryPolicy,
    had: RetryCounters,
) -> Option<LeaseEnd> {
    let AttemptEnd { outcome, wake_seq, wait, server, complaint } = attempt;
    Some(match outcome {
        Ok(ExecutionResult::Success { output }) => lease.finish(output.to_string()),
        // A verdict of the definition is never retried.
        Ok(ExecutionResult::Failure { code, summary }) => lease.refuse(&code, summary.as_deref(), complaint.as_ref()),
        Err(StepError::Failed(failure)) => {
            match policy.delay(failure.class, had, failure.retry_after, lease.token.chance()) {
                Some(delay) => lease.retry(&failure, delay, wake_seq),
                None => lease.fail(&failure),
            }
        }
        Err(StepError::Interrupt(Interrupt::Cancelled)) => lease.cancel(),
        Err(StepError::Interrupt(Interrupt::Waiting)) => match (server, wait) {
            // A wake of the execution's other wait ends this wait too.
            (Some((failure, delay)), wait) => {
                lease.reconnect(&failure, delay, wait.map_or(wake_seq, |wait| wait.wake_seq))
            }
            (None, Some(Wait { reason, time, wake_seq })) => lease.park(reason, time, wake_seq),
            // Without a wait the execution is runnable at once.
            (None, None) => lease.release(),
        },
        Err(StepError::Interrupt(Interrupt::Draining)) => lease.drain(),
        Err(StepError::Interrupt(Interrupt::LeaseLost)) => return None,
        Err(StepError::Interrupt(Interrupt::DeadlineExceeded)) => lease.fail(&Failure::new(
            FailureClass::Permanent,
            FailureCode::DEADLINE_EXCEEDED,
            "the execution ran longer than it may",
        )),
    })
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{ExecutionId, LeaseToken};
    use longhaul_store::executions::outcomes::AttemptOutcome::{self, Cancelled, Drained, Failed, Finished, Parked};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn attempt(outcome: Step<ExecutionResult>) -> AttemptEnd {
        AttemptEnd { outcome, wake_seq: 3, wait: None, server: None, complaint: None }
    }

    fn decided(attempt: AttemptEnd, had: RetryCounters) -> Option<LeaseEnd> {
        let lease = LeaseKey { id: ExecutionId(Uuid::nil()), token: LeaseToken(Uuid::nil()) };
        decide(lease, attempt, &RetryPolicy::default(), had)
    }

    fn outcome(of: Step<ExecutionResult>) -> Option<AttemptOutcome> {
        decided(attempt(of), RetryCounters::default()).map(|end| end.outcome())
    }

    #[test]
    fn success_finishes_and_verdict_fails() {
        assert_eq!(outcome(Ok(ExecutionResult::Success { output: json!(0) })), Some(Finished));
        let refused = ExecutionResult::Failure { code: FailureCode::MAX_RETRIES_EXCEEDED, summary: Some("why".into()) };
        let end = decided(attempt(Ok(refused)), RetryCounters::default()).unwrap();
        assert_eq!(end.failure(), Some((FailureClass::Permanent, FailureCode::MAX_RETRIES_EXCEEDED.as_str())));
    }

    #[test]
    fn interrupts_spend_no_retry() {
        assert_eq!(outcome(Err(Interrupt::LeaseLost.into())), None);
        assert_eq!(outcome(Err(Interrupt::Draining.into())), Some(Drained));
        assert_eq!(outcome(Err(Interrupt::Cancelled.into())), Some(Cancelled));
        assert_eq!(outcome(Err(Interrupt::Waiting.into())), Some(AttemptOutcome::Released));
        assert_eq!(outcome(Err(Interrupt::DeadlineExceeded.into())), Some(Failed));
    }

    #[test]
    fn transient_failure_retries_until_its_series_ends() {
        let failure = || Failure::new(FailureClass::Transient, FailureCode::MODEL_UNREACHABLE, "no route");
        let with = |transient| {
            let had = RetryCounters { transient, ..RetryCounters::default() };
            decided(attempt(Err(failure().into())), had).unwrap()
        };
        let backoff = (WaitReason::RetryBackoff.as_str(), Some(Duration::from_secs(10)));
        assert_eq!((with(0).outcome(), with(0).wait()), (AttemptOutcome::Retrying, Some(backoff)));
        assert_eq!((with(3).outcome(), with(3).wait()), (Failed, None));
    }

    #[test]
    fn tool_server_comes_before_other_wait() {
        let wait = Some(Wait { reason: WaitReason::Approval, time: None, wake_seq: 1 });
        let parked = AttemptEnd { wait, ..attempt(Err(Interrupt::Waiting.into())) };
        let end = decided(parked, RetryCounters::default()).unwrap();
        assert_eq!((end.outcome(), end.wait()), (Parked, Some((WaitReason::Approval.as_str(), None))));
        let failure = Failure::new(FailureClass::Transient, FailureCode::MODEL_UNREACHABLE, "no route");
        let server = Some((failure, Duration::from_secs(5)));
        let parked = AttemptEnd { wait, server, ..attempt(Err(Interrupt::Waiting.into())) };
        let end = decided(parked, RetryCounters::default()).unwrap();
        let backoff = (WaitReason::RetryBackoff.as_str(), Some(Duration::from_secs(5)));
        assert_eq!((end.outcome(), end.wait()), (Parked, Some(backoff)));
    }
}
