//! How long an execution may live.

use std::time::Duration;

/// The longest deadline, waits included. What is kept of executions outlasts it, and the sweep looks for nearer ones apart.
pub const MAX_DEADLINE: Duration = Duration::from_secs(30 * 24 * 3_600);
