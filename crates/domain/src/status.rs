//! Status and wait reason of an execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::{ExecutionId, named};

named!(ExecutionStatus, WaitReason);

/// Stored status. Moves only from left to right.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionStatus {
    /// Submitted and never claimed.
    Pending,
    /// Claimed at least once and not ended; running or parked.
    InProgress,
    /// Ended with an output that passed its validators. Never changes again.
    Finished,
    /// Ended without a valid output. Never changes again.
    Failed,
}

/// Reason why no worker holds an execution.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WaitReason {
    /// Runnable; waits for a worker.
    Worker,
    /// `run_at` is in the future, or the code of a remote worker sleeps.
    Scheduled,
    /// A failed attempt will be retried at `wait_until`.
    RetryBackoff,
    /// A person must approve a call.
    Approval,
    /// Child executions must end.
    Children,
    /// A concurrency limit is full.
    ConcurrencyLimit,
    /// A rate limit is exhausted until `wait_until`.
    RateLimit,
    /// The budget is exhausted.
    Budget,
    /// The model provider is down until `wait_until`.
    ProviderDown,
    /// The queue is paused.
    QueuePaused,
    /// The caller must answer a question, post a result or send a signal.
    Input,
    /// No live worker serves its definition version.
    NoWorker,
}

impl ExecutionStatus {
    /// Returns true if the status never changes again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::InProgress => false,
            Self::Finished | Self::Failed => true,
        }
    }
}

/// State transitions; the edges of docs/reference/state-machine.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray)]
pub enum Transition {
    /// A worker claims the execution.
    Claim,
    /// The worker parks or releases the execution, or dies.
    Release,
    /// The wait condition holds.
    Wake,
    /// The execution ends with a validated output.
    Finish,
    /// The execution ends without output: failure, cancel, deadline, quarantine.
    Fail,
}

impl Transition {
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// A transition that the state machine does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{transition:?} is not possible from {from}")]
pub struct IllegalTransition {
    from: ExecutionStatus,
    transition: Transition,
}

impl ExecutionStatus {
    /// Returns the status after `transition`.
    ///
    /// # Errors
    /// Fails if the state machine has no such edge.
    pub fn next(self, transition: Transition) -> Result<Self, IllegalTransition> {
        use ExecutionStatus::{Failed, Finished, InProgress, Pending};
        match (self, transition) {
            (Pending | InProgress, Transition::Claim) => Ok(InProgress),
            (InProgress, Transition::Release) => Ok(InProgress),
            (Pending, Transition::Wake) => Ok(Pending),
            (InProgress, Transition::Wake) => Ok(InProgress),
            (InProgress, Transition::Finish) => Ok(Finished),
            (Pending | InProgress, Transition::Fail) => Ok(Failed),
            (Pending, Transition::Release | Transition::Finish)
            | (
                Finished | Failed,
                Transition::Claim | Transition::Release | Transition::Wake | Transition::Finish | Transition::Fail,
            ) => Err(IllegalTransition { from: self, transition }),
        }
    }
}

/// An execution that became runnable and needs a wake-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runnable {
    pub id: ExecutionId,
    pub queue: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_is_terminal_and_status_only_moves_rightwards() {
        for &from in ExecutionStatus::ALL {
            for &transition in Transition::ALL {
                match from.next(transition) {
                    Ok(to) => assert!(to >= from && !from.is_terminal(), "{from} {transition:?} {to}"),
                    Err(_) => assert!(from.is_terminal() || from == ExecutionStatus::Pending),
                }
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for &status in ExecutionStatus::ALL {
            assert_eq!(ExecutionStatus::parse(status.as_str()), Some(status));
        }
        for &reason in WaitReason::ALL {
            assert_eq!(WaitReason::parse(reason.as_str()), Some(reason));
        }
    }
}
