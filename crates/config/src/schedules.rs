//! `[schedules]`: limits of schedules.

use serde::{Deserialize, Serialize};

use super::Rules;

/// Most schedules of one tenant.
const MAX_SCHEDULES: u32 = 100_000;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct SchedulesConfig {
    /// Schedules of one tenant.
    pub max_per_tenant: u32,
}

impl SchedulesConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(self.max_per_tenant <= MAX_SCHEDULES, "schedules.max_per_tenant must be at most 100,000");
    }
}
