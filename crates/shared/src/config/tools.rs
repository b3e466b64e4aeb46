//! `[tools]`: limits of the built-in tools.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Rules, units};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ToolsConfig {
    pub fetch_url: FetchUrlConfig,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct FetchUrlConfig {
    pub allow_private_addresses: bool,
    pub max_bytes: u32,
    #[serde(rename = "timeout_seconds", with = "units::seconds")]
    pub timeout: Duration,
}

impl ToolsConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(
            (1..=64 << 20).contains(&self.fetch_url.max_bytes),
            "tools.fetch_url.max_bytes must be 1 to 64 MiB: an answer is held in memory",
        );
        rules.positive("tools.fetch_url.timeout_seconds", self.fetch_url.timeout);
    }
}
