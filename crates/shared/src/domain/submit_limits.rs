//! Limits and defaults of what submits, projects and schedules have in common.

use super::DEFAULT_QUEUE;

/// Pattern of a queue's name; see [`super::QueueName`].
pub const QUEUE_PATTERN: &str = "^[a-z0-9._-]{1,64}$";
/// Highest priority; the lowest is 0.
pub const MAX_PRIORITY: i16 = 9;
/// Size of metadata as JSON, in bytes.
pub const MAX_METADATA_BYTES: usize = 16 * 1024;
/// Members of metadata.
pub const MAX_METADATA_FIELDS: usize = 64;

/// The priority of what names none.
#[must_use]
pub fn default_priority() -> i16 {
    5
}

/// The queue of what names none.
#[must_use]
pub fn default_queue() -> String {
    DEFAULT_QUEUE.to_owned()
}
