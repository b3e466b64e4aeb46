//! Every Redis key of the product.
//!
//! | key | type | holds | limit | lifetime |
//! |---|---|---|---|---|
//! | `{<prefix>:v1}:wake:<queue>` | list | wake-ups of one queue (`messages.rs`): 16 bytes each, an execution id or nil | the configured cap, default 1,000 | an hour after the last push |
//! | `{<prefix>:v1}:look` | pub/sub channel | execution ids that changed, concatenated, 16 bytes each | 4,096 ids a message | not stored |
//! | `{<prefix>:v1}:model:<endpoint>:rates` | hash | when the next request and token to a model endpoint would be on time | 3 fields | two days |
//! | `{<prefix>:v1}:model:<endpoint>:running` | sorted set | executions whose call to it is under way, by when each is believed lost | its calls at a time | two days |
//! | `{<prefix>:v1}:model:<endpoint>:places` | sorted set | executions that have a place in its rates reserved, by when it comes | those parked with `rate_limit` | two days |
//!
//! The part in braces is the hash tag: all keys fall into one cluster slot, which a blocking pop over several lists
//! requires. `v1` changes when a key gets another type or meaning, so that old and new processes of a rolling upgrade
//! never take one for the other; the sweep fills the new lists. Other bytes in a message need no new key (`messages.rs`).

use std::fmt;

use super::QueueName;

/// How long a list outlives its last push. A queue nobody serves leaves nothing behind; while rows are due, the sweep
/// pushes again.
pub(crate) const WAKE_LIST_TTL_SECONDS: u64 = 3600;

/// The keys under one prefix. Installations, and tests, that share a Redis differ in the prefix.
#[derive(Clone)]
pub(crate) struct Keys {
    tag: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { tag: format!("{{{prefix}:v1}}") }
    }

    /// The list of wake-ups of `queue`.
    pub(crate) fn wake(&self, queue: &QueueName) -> String {
        format!("{}:wake:{queue}", self.tag)
    }

    /// When the next request, and the next token, to an endpoint would be on time.
    pub(crate) fn model_rates(&self, endpoint: &str) -> String {
        format!("{}:model:{endpoint}:rates", self.tag)
    }

    /// The calls to an endpoint that are under way.
    pub(crate) fn model_running(&self, endpoint: &str) -> String {
        format!("{}:model:{endpoint}:running", self.tag)
    }

    /// The places reserved in the rates of an endpoint.
    pub(crate) fn model_places(&self, endpoint: &str) -> String {
        format!("{}:model:{endpoint}:places", self.tag)
    }

    /// The channel on which changed executions are announced.
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
    fn all_keys_share_one_hash_tag_and_carry_the_version() {
        let keys = Keys::new("longhaul");
        let queue = QueueName::new("billing.eu").unwrap();
        assert_eq!(keys.wake(&queue), "{longhaul:v1}:wake:billing.eu");
        assert_eq!(keys.look(), "{longhaul:v1}:look");
    }
}
