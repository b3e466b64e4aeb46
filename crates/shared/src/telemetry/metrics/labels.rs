//! Closed sets of label values.

use std::collections::BTreeSet;

macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $label:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All values, for tests and dashboards.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label),+ }
            }
        }
    };
}

label! {
    /// Reason why a wake-up was dropped. None loses work.
    WakeupDrop {
        /// The publisher's buffer was full.
        BufferFull = "buffer_full",
        /// The list was at its cap.
        ListFull = "list_full",
        RedisAway = "redis_away",
        /// The wake-up waited for Redis for so long that the sweep has made newer ones.
        Stale = "stale",
    }
}

label! {
    /// Reason of a claim.
    ClaimReason {
        Wakeup = "wakeup",
        /// The previous claim was full.
        Backlog = "backlog",
        /// A timer: slow when idle, fast while Redis is away.
        Poll = "poll",
    }
}

label! {
    /// Outcome of a model call.
    ModelOutcome {
        Ok = "ok",
        Transient = "transient",
        LlmError = "llm_error",
        ContextLimit = "context_limit",
        Permanent = "permanent",
    }
}

label! {
    TokenKind {
        Input = "input",
        Output = "output",
        /// Input read from the provider's cache.
        CachedInput = "cached_input",
    }
}

label! {
    /// Outcome of a tool call.
    CallOutcome {
        Ok = "ok",
        /// The tool reported an error to the model.
        Error = "error",
        /// The arguments broke the tool's schema.
        InvalidArguments = "invalid_arguments",
        /// A person rejected the call.
        Rejected = "rejected",
        Timeout = "timeout",
        /// The call may have run, and its tool cannot tell.
        Unknown = "unknown",
        Aborted = "aborted",
        /// Not started: a call it depends on failed, or a reference in its arguments cannot be resolved.
        Unrun = "unrun",
    }
}

label! {
    /// Batches of the store.
    StoreBatch {
        Submit = "submit",
        Record = "record",
        Conclude = "conclude",
        /// Requests to people.
        Request = "request",
        /// Reservations of model calls.
        Budget = "budget",
        /// Slots of concurrency limits, handed over to waiting executions.
        HandOver = "hand_over",
        /// Failures counted against a model endpoint.
        ProviderFailure = "provider_failure",
        /// 429 responses of model endpoints.
        ProviderThrottle = "provider_throttle",
    }
}

label! {
    /// Subject of a database error.
    RefusalSubject {
        /// The statement's values.
        Values = "values",
        /// Time, memory or size of the statement.
        Amount = "amount",
        /// The server or its schema.
        Server = "server",
        Connection = "connection",
    }
}

/// Maximum queues with a label of their own. Users choose queue names, so further queues share `other`.
const QUEUES_MAX: usize = 100;

/// Labels assigned to queues so far.
#[derive(Default)]
pub(super) struct QueueLabels {
    given: BTreeSet<String>,
}

impl QueueLabels {
    /// Label of a queue: its name for the first hundred queues of this process, then `other`.
    pub(super) fn label(&mut self, queue: &str) -> String {
        if self.given.contains(queue) {
            return queue.to_owned();
        }
        let label = if self.given.len() < QUEUES_MAX { queue } else { "other" };
        self.given.insert(label.to_owned());
        label.to_owned()
    }

    pub(super) fn given(&self) -> impl Iterator<Item = &String> {
        self.given.iter()
    }
}
