//! Closed sets of label values.

use std::collections::BTreeSet;

use strum::{EnumString, IntoStaticStr, VariantArray};

use longhaul_domain::named;

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
    /// Only kept permits were free, and a tenant that holds none here had work.
    Newcomer,
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
    /// Executions that join the line of a model endpoint.
    ProviderWait,
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

/// Most values of one label whose values users choose: names of queues, models and tools. Further ones share `other`.
const VALUES_MAX: usize = 100;
/// Longest value in bytes; longer ones share `other` too.
const VALUE_BYTES_MAX: usize = 200;
const OTHER: &str = "other";

/// Values given so far to a label whose values users choose.
#[derive(Default)]
pub(super) struct BoundedLabel {
    given: BTreeSet<String>,
}

impl BoundedLabel {
    /// The value itself for the first hundred values of this process, then `other`.
    pub(super) fn of(&mut self, value: &str) -> String {
        if self.given.contains(value) {
            return value.to_owned();
        }
        let has_room = self.given.len() < VALUES_MAX && value.len() <= VALUE_BYTES_MAX;
        let label = if has_room { value } else { OTHER };
        self.given.insert(label.to_owned());
        label.to_owned()
    }

    pub(super) fn given(&self) -> impl Iterator<Item = &String> {
        self.given.iter()
    }
}
