//! `[projects]`: limits of projects.

use serde::{Deserialize, Serialize};

use super::Rules;

/// Most projects of one tenant that may run at a time.
const MAX_RUNNING: u32 = 10_000;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ProjectsConfig {
    /// For each tenant.
    pub max_running: u32,
}

impl ProjectsConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require((1..=MAX_RUNNING).contains(&self.max_running), "projects.max_running must be 1 to 10,000");
    }
}
