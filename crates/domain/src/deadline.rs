//! The limit of an execution's lifetime.

use std::time::Duration;

/// Longest deadline, waits included. Data of executions is kept for longer than this.
pub const MAX_DEADLINE: Duration = Duration::from_secs(30 * 24 * 3_600);
