//! Status and wait reason of an execution.

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// All variants, in the order of the docs.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Name as stored and shown.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// Parses a name; `None` if unknown.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(super) use named;

named! {
    /// Stored status. Moves only from left to right.
    ExecutionStatus {
        /// Submitted and never claimed.
        Pending = "PENDING",
        /// Claimed at least once and not ended; running or parked.
        InProgress = "IN_PROGRESS",
        /// Ended with an output that passed its validators. Never changes again.
        Finished = "FINISHED",
        /// Ended without a valid output. Never changes again.
        Failed = "FAILED",
    }
}

named! {
    /// Reason why no worker holds an execution.
    WaitReason {
        /// Runnable; waits for a worker.
        Worker = "worker",
        /// `run_at` is in the future.
        Scheduled = "scheduled",
        /// A failed attempt will be retried at `wait_until`.
        RetryBackoff = "retry_backoff",
        /// A person must approve a call.
        Approval = "approval",
        /// Child executions must end.
        Children = "children",
        /// A concurrency limit is full.
        ConcurrencyLimit = "concurrency_limit",
        /// A rate limit is exhausted until `wait_until`.
        RateLimit = "rate_limit",
        /// The budget is exhausted.
        Budget = "budget",
        /// The model provider is down until `wait_until`.
        ProviderDown = "provider_down",
        /// The queue is paused.
        QueuePaused = "queue_paused",
        /// The caller must answer a question.
        Input = "input",
        /// No live worker serves its definition version.
        NoWorker = "no_worker",
    }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    pub const ALL: [Self; 5] = [Self::Claim, Self::Release, Self::Wake, Self::Finish, Self::Fail];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_is_terminal_and_status_only_moves_rightwards() {
        for &from in ExecutionStatus::ALL {
            for transition in Transition::ALL {
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
