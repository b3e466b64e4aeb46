//! `[memory]`: what agents remember, and for how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Rules, units};

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct MemoryConfig {
    /// False: nothing is remembered or recalled, whatever the agents' settings.
    pub enabled: bool,
    /// Time after its last change at which an episode is forgotten; zero keeps all.
    #[serde(rename = "keep_seconds", with = "units::seconds")]
    pub keep: Duration,
    /// Budget of one update.
    pub update_max_tokens: u32,
}

impl MemoryConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(
            (1_000..=10_000_000).contains(&self.update_max_tokens),
            "memory.update_max_tokens must be 1,000 to 10,000,000",
        );
    }
}
