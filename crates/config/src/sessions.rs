//! `[sessions]`: limits of conversations.

use serde::{Deserialize, Serialize};

use super::Rules;

/// Most sessions of one tenant and agent that may run at a time.
const MAX_RUNNING: u32 = 10_000;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct SessionsConfig {
    /// For each tenant and agent; 0 is unlimited.
    pub max_running_per_agent: u32,
}

impl SessionsConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(
            self.max_running_per_agent <= MAX_RUNNING,
            "sessions.max_running_per_agent must be 0 (unlimited) to 10,000",
        );
    }
}
