//! The closed sets that labels come from.

use std::collections::BTreeSet;

macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $label:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value, for tests and dashboards.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label),+ }
            }
        }
    };
}

label! {
    /// Why a wake-up was dropped. None of them loses work.
    WakeupDrop {
        /// The publisher's buffer was full.
        BufferFull = "buffer_full",
        /// The list was at its cap: there are wake-ups enough.
        ListFull = "list_full",
        RedisAway = "redis_away",
        /// It waited so long for Redis that the sweep has made newer ones.
        Stale = "stale",
    }
}

label! {
    /// Why a claim was made.
    ClaimReason {
        Wakeup = "wakeup",
        /// The claim before came back full.
        Backlog = "backlog",
        /// A clock: the slow one of quiet times, or the fast one while Redis is away.
        Poll = "poll",
    }
}

label! {
    /// How a model call ended.
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
        /// Input that the provider had in its cache.
        CachedInput = "cached_input",
    }
}

label! {
    /// How a tool call ended.
    CallOutcome {
        Ok = "ok",
        /// The tool reported an error to the model.
        Error = "error",
        /// The arguments broke the tool's schema.
        InvalidArguments = "invalid_arguments",
        /// A person said no.
        Rejected = "rejected",
        Timeout = "timeout",
        /// It may have happened, and its tool cannot say.
        Unknown = "unknown",
        Aborted = "aborted",
        /// What it reads was not there.
        Unrun = "unrun",
    }
}

label! {
    /// The batches of the store.
    StoreBatch {
        Submit = "submit",
        Record = "record",
        Conclude = "conclude",
        /// Calls put before people.
        Request = "request",
        /// Reservations of model calls.
        Budget = "budget",
        /// Slots of concurrency limits, to who waits for them.
        HandOver = "hand_over",
        /// Failures that tell of a model endpoint.
        ProviderFailure = "provider_failure",
        /// 429s of model endpoints.
        ProviderThrottle = "provider_throttle",
    }
}

label! {
    /// The subject of an error of the database.
    RefusalSubject {
        /// The statement's values.
        Values = "values",
        /// Its time, its memory or its size.
        Amount = "amount",
        /// The server or its schema.
        Server = "server",
        /// The connection.
        Connection = "connection",
    }
}

/// Queue names are the user's; beyond this many they share one label.
const QUEUES_MAX: usize = 100;

/// The labels given to queues so far.
#[derive(Default)]
pub(super) struct QueueLabels {
    given: BTreeSet<String>,
}

impl QueueLabels {
    /// The label of a queue: its name for the first hundred queues of this process, `other` after.
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
