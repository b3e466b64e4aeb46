//! All Redis keys of the product. `<tag>` is `{<prefix>:v1}`.
//!
//! - `<tag>:wake:<queue>`, list: wake-ups of one queue (`messages.rs`), 16 or 17 bytes each. At most the configured
//!   cap; expires `WAKE_LIST_TTL_SECONDS` after the last push.
//! - `<tag>:look`, pub/sub channel: concatenated ids of changed executions, 16 bytes each, at most
//!   `producer::LOOK_MESSAGE_IDS` per message.
//! - `<tag>:text`, pub/sub channel: pieces of replies as JSON (`hints::TextDelta`), for chats.
//! - `<tag>:reply:<execution>`, string: number of the turn that the execution of a session writes (`replies.rs`).
//! - `<tag>:reply:<execution>:<turn>`, string: text of that turn so far, at most `replies::MAX_BYTES`. Both expire
//!   `replies::TTL_SECONDS` after the last piece.
//! - `<tag>:model:<endpoint>:rates`, hash of 3 fields: GCRA state of a model endpoint (times at which the next
//!   request and token conform). Expires after `model_calls::TTL_SECONDS`, like the next two.
//! - `<tag>:model:<endpoint>:running`, sorted set: executions with a call in flight, scored by the time at which
//!   each call is considered lost. At most the endpoint's concurrency limit.
//! - `<tag>:model:<endpoint>:places`, sorted set: executions with a reserved slot in the rates, scored by its time.
//!   At most the executions parked with `rate_limit`.
//!
//! The part in braces is a hash tag: all keys fall into one cluster slot, as a blocking pop over several lists
//! requires. `v1` changes when a key changes its type or meaning, so that old and new processes of a rolling
//! upgrade never share it; the sweep fills the new lists. Another message format needs no new key (`messages.rs`).

use std::fmt;

use longhaul_domain::ExecutionId;

use super::QueueName;

/// Time after its last push at which a list expires, in seconds. Cleans up queues that no worker serves; while rows
/// are due, the sweep pushes again.
pub(crate) const WAKE_LIST_TTL_SECONDS: u64 = 3600;

/// The keys under one prefix. Installations and tests that share a Redis use different prefixes.
#[derive(Clone)]
pub(crate) struct Keys {
    tag: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { tag: format!("{{{prefix}:v1}}") }
    }

    pub(crate) fn wake(&self, queue: &QueueName) -> String {
        format!("{}:wake:{queue}", self.tag)
    }

    /// Times at which the next request and the next token of an endpoint conform to its rates.
    pub(crate) fn model_rates(&self, endpoint: &str) -> String {
        format!("{}:model:{endpoint}:rates", self.tag)
    }

    /// Calls of an endpoint in flight.
    pub(crate) fn model_running(&self, endpoint: &str) -> String {
        format!("{}:model:{endpoint}:running", self.tag)
    }

    /// Slots reserved in the rates of an endpoint.
    pub(crate) fn model_places(&self, endpoint: &str) -> String {
        format!("{}:model:{endpoint}:places", self.tag)
    }

    /// Turn that an execution writes.
    pub(crate) fn reply(&self, execution: ExecutionId) -> String {
        format!("{}:reply:{execution}", self.tag)
    }

    /// Text of a turn so far.
    pub(crate) fn reply_text(&self, execution: ExecutionId, turn: u32) -> String {
        format!("{}:reply:{execution}:{turn}", self.tag)
    }

    /// Channel of replies' text as it arrives.
    pub(crate) fn text(&self) -> String {
        format!("{}:text", self.tag)
    }

    /// Channel that announces changed executions.
    pub(crate) fn look(&self) -> String {
        format!("{}:look", self.tag)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_share_a_versioned_hash_tag() {
        let keys = Keys::new("longhaul");
        let queue = QueueName::new("billing.eu").unwrap();
        assert_eq!(keys.wake(&queue), "{longhaul:v1}:wake:billing.eu");
        assert_eq!(keys.look(), "{longhaul:v1}:look");
    }
}
