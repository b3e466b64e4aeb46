//! Closed sets of label values.

use std::collections::BTreeSet;

use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::named;

named!(
    WakeupDrop,
    ClaimReason,
    ModelOutcome,
    TokenKind,
    CallOutcome,
    StoreBatch,
    RefusalSubject,
    FilePlace,
    FileRefusal
);

/// Reason why a wake-up was dropped. None loses work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WakeupDrop {
    /// The publisher's buffer was full.
    BufferFull,
    /// The list was at its cap.
    ListFull,
    RedisAway,
    /// The wake-up waited for Redis for so long that the sweep has made newer ones.
    Stale,
}

/// Reason of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ClaimReason {
    Wakeup,
    /// The previous claim was full.
    Backlog,
    /// A timer: slow when idle, fast while Redis is away.
    Poll,
}

/// Outcome of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ModelOutcome {
    Ok,
    Transient,
    LlmError,
    ContextLimit,
    Permanent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TokenKind {
    Input,
    Output,
    /// Part of the input that was read from the provider's cache.
    CachedInput,
    /// Part of the input that was written to the provider's cache.
    CacheWriteInput,
}

/// Store of the bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FilePlace {
    Postgres,
    ObjectStore,
}

/// Reason why a file was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FileRefusal {
    TooLarge,
    UnsupportedType,
    /// The tenant's quota has no room.
    Quota,
}

/// Outcome of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CallOutcome {
    Ok,
    /// The tool reported an error to the model.
    Error,
    /// The arguments broke the tool's schema.
    InvalidArguments,
    /// A person rejected the call.
    Rejected,
    Timeout,
    /// The call may have run, and its tool cannot tell.
    Unknown,
    Aborted,
    /// Not started: a call it depends on failed, or a reference in its arguments cannot be resolved.
    Unrun,
}

/// Batches of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StoreBatch {
    Submit,
    Record,
    Conclude,
    /// Requests to people.
    Request,
    /// Reservations of model calls.
    Budget,
    /// Slots of concurrency limits, handed over to waiting executions.
    HandOver,
    /// Failures counted against a model endpoint.
    ProviderFailure,
    /// 429 responses of model endpoints.
    ProviderThrottle,
}

/// Subject of a database error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RefusalSubject {
    /// The statement's values.
    Values,
    /// Time, memory or size of the statement.
    Amount,
    /// The server or its schema.
    Server,
    Connection,
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
