//! Limits and defaults of what submits, projects and schedules have in common.

use super::DEFAULT_QUEUE;

/// Highest priority; the lowest is 0.
pub const MAX_PRIORITY: i16 = 9;
/// Size of metadata as JSON, in bytes.
pub const MAX_METADATA_BYTES: usize = 16 * 1024;
/// Members of metadata.
pub const MAX_METADATA_FIELDS: usize = 64;

/// The priority of what names none.
pub const DEFAULT_PRIORITY: i16 = 5;

/// [`DEFAULT_PRIORITY`], for `serde`.
#[must_use]
pub fn default_priority() -> i16 {
    DEFAULT_PRIORITY
}

/// The queue of what names none.
#[must_use]
pub fn default_queue() -> String {
    DEFAULT_QUEUE.to_owned()
}
