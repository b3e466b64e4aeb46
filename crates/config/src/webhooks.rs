//! `[webhooks]`: endpoints that are told of ends and requests.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Rules, units};

/// Most endpoints of one tenant.
const MAX_ENDPOINTS: u32 = 1_000;
/// Most deliveries to one endpoint at a time: half of those of a process.
const MAX_AT_ONCE: usize = 256;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct WebhooksConfig {
    /// Endpoints of one tenant.
    pub max_per_tenant: u32,
    /// True if endpoints may have private addresses.
    pub allow_private_addresses: bool,
    /// Limit of one attempt.
    #[serde(rename = "timeout_seconds", with = "units::seconds")]
    pub timeout: Duration,
    /// Time without a success after which an endpoint is disabled.
    #[serde(rename = "disable_after_seconds", with = "units::seconds")]
    pub disable_after: Duration,
    /// Deliveries to one endpoint at a time, once one was delivered.
    pub at_once: usize,
}

impl WebhooksConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(self.max_per_tenant <= MAX_ENDPOINTS, "webhooks.max_per_tenant must be at most 1,000");
        rules.require((1.0..=30.0).contains(&self.timeout.as_secs_f64()), "webhooks.timeout_seconds must be 1 to 30");
        rules.require((1..=MAX_AT_ONCE).contains(&self.at_once), "webhooks.at_once must be 1 to 256");
        rules.require(
            self.disable_after >= Duration::from_secs(3_600),
            "webhooks.disable_after_seconds must be at least 3,600",
        );
    }
}
