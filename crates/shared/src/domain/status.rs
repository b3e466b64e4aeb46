//! Where an execution stands, and what it waits for.

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every value, in the order of the docs.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name as stored and shown.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// Reads a name back; `None` for anything else.
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
    /// The stored status. It only moves rightwards.
    ExecutionStatus {
        /// Submitted; no worker has had it yet.
        Pending = "PENDING",
        /// From the first claim until it ends, parked or not.
        InProgress = "IN_PROGRESS",
        /// Ended with an output that passed its validators. Never changes again.
        Finished = "FINISHED",
        /// Ended without one. Never changes again.
        Failed = "FAILED",
    }
}

named! {
    /// What an execution that no worker holds is waiting for.
    WaitReason {
        /// Runnable; no worker has taken it yet.
        Worker = "worker",
        /// Its `run_at` has not come.
        Scheduled = "scheduled",
        /// A failed attempt will be retried at `wait_until`.
        RetryBackoff = "retry_backoff",
        /// A person must decide.
        Approval = "approval",
        /// Executions it started must end.
        Children = "children",
        /// A concurrency limit is full.
        ConcurrencyLimit = "concurrency_limit",
        /// A rate limit is spent until `wait_until`.
        RateLimit = "rate_limit",
        /// Its budget is exhausted.
        Budget = "budget",
        /// Its model provider is known to be down until `wait_until`.
        ProviderDown = "provider_down",
        /// Its queue is paused.
        QueuePaused = "queue_paused",
        /// It asked the caller a question.
        Input = "input",
        /// No live worker serves its definition version.
        NoWorker = "no_worker",
    }
}

impl ExecutionStatus {
    /// Whether the status never changes again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::InProgress => false,
            Self::Finished | Self::Failed => true,
        }
    }
}

/// What can happen to an execution; the edges of docs/state-machine.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transition {
    /// A worker takes it.
    Claim,
    /// Its worker parks it, hands it back, or dies.
    Release,
    /// What it waited for happened.
    Wake,
    /// Its output is proven.
    Finish,
    /// It ends without one: failure, cancel, deadline, quarantine.
    Fail,
}

impl Transition {
    /// Every transition.
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
    /// The status after `transition`.
    ///
    /// # Errors
    /// The state machine has no such edge.
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
