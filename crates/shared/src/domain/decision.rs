//! The decision at the end of an attempt. A pure function; its caller carries the decision out.

use std::time::Duration;

use longhaul_sdk::{
    failure::{Failure, FailureClass, FailureCode, Interrupt, Step, StepError},
    result::ExecutionResult,
};
use serde_json::Value;

use crate::domain::retry::{RetryCounters, RetryPolicy};

/// Result of an attempt.
pub type Outcome = Step<ExecutionResult>;

/// Action to take at the end of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// End as FINISHED with this output.
    Finish(Value),
    /// End as FAILED with this cause.
    Fail(Failure),
    /// End as FAILED because the definition returned a failure. Never retried.
    Refuse {
        /// One of the definition's failure codes.
        code: FailureCode,
        /// The definition's summary, if any. An empty text is kept.
        summary: Option<String>,
    },
    /// Park until the delay has passed, then continue from the journal.
    Retry {
        /// Cause, kept with the attempt.
        failure: Failure,
        delay: Duration,
    },
    /// Park until the wait condition holds.
    Park,
    /// End as FAILED with code `cancelled`.
    Cancel,
    /// Release the execution: another worker continues, and no attempt is spent.
    Release,
    /// Write nothing: another worker holds the lease.
    Abandon,
}

/// Maps the outcome of an attempt to a decision. `chance` in `0..1` drives the policy's jitter.
#[must_use]
pub fn decide(outcome: Outcome, policy: &RetryPolicy, had: RetryCounters, chance: f64) -> Decision {
    match outcome {
        Ok(ExecutionResult::Success { output }) => Decision::Finish(output),
        Ok(ExecutionResult::Failure { code, summary }) => Decision::Refuse { code, summary },
        Err(StepError::Failed(failure)) => match policy.delay(failure.class, had, failure.retry_after, chance) {
            Some(delay) => Decision::Retry { failure, delay },
            None => Decision::Fail(failure),
        },
        Err(StepError::Interrupt(Interrupt::Cancelled)) => Decision::Cancel,
        Err(StepError::Interrupt(Interrupt::Waiting)) => Decision::Park,
        Err(StepError::Interrupt(Interrupt::Draining)) => Decision::Release,
        Err(StepError::Interrupt(Interrupt::LeaseLost)) => Decision::Abandon,
        Err(StepError::Interrupt(Interrupt::DeadlineExceeded)) => Decision::Fail(Failure::new(
            FailureClass::Permanent,
            FailureCode::DEADLINE_EXCEEDED,
            "the execution ran longer than it may",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decide_fresh(outcome: Outcome) -> Decision {
        decide(outcome, &RetryPolicy::default(), RetryCounters::default(), 0.0)
    }

    #[test]
    fn success_finishes_and_a_result_that_failed_fails() {
        assert_eq!(decide_fresh(Ok(ExecutionResult::Success { output: json!(0) })), Decision::Finish(json!(0)));
        let failed = ExecutionResult::Failure { code: FailureCode::MAX_RETRIES_EXCEEDED, summary: Some("why".into()) };
        assert_eq!(
            decide_fresh(Ok(failed)),
            Decision::Refuse { code: FailureCode::MAX_RETRIES_EXCEEDED, summary: Some("why".into()) }
        );
    }

    #[test]
    fn interrupts_are_no_failures() {
        assert_eq!(decide_fresh(Err(Interrupt::LeaseLost.into())), Decision::Abandon);
        assert_eq!(decide_fresh(Err(Interrupt::Draining.into())), Decision::Release);
        assert_eq!(decide_fresh(Err(Interrupt::Cancelled.into())), Decision::Cancel);
        assert_eq!(decide_fresh(Err(Interrupt::Waiting.into())), Decision::Park);
    }

    #[test]
    fn a_transient_failure_retries_until_its_series_ends() {
        let failure = Failure::new(FailureClass::Transient, FailureCode::MODEL_UNREACHABLE, "no route");
        let with = |transient| {
            let had = RetryCounters { transient, ..RetryCounters::default() };
            decide(Err(failure.clone().into()), &RetryPolicy::default(), had, 0.0)
        };
        assert_eq!(with(0), Decision::Retry { failure: failure.clone(), delay: Duration::from_secs(10) });
        assert_eq!(with(3), Decision::Fail(failure.clone()));
    }
}
