//! `[sub_agents]`: limits of executions that other executions start.

use serde::{Deserialize, Serialize};

use super::Rules;

/// Most sub-agents that may run at a time.
const MAX_RUNNING: u32 = 10_000;

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct SubAgentsConfig {
    /// For each tenant; 0 is unlimited.
    pub max_running: u32,
    /// Over all tenants; 0 is unlimited.
    pub max_running_fleet: u32,
}

impl SubAgentsConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(
            self.max_running <= MAX_RUNNING && self.max_running_fleet <= MAX_RUNNING,
            "sub_agents.max_running and sub_agents.max_running_fleet must be 0 (unlimited) to 10,000",
        );
    }
}
