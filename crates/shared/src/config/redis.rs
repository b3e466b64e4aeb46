//! `[redis]`: the wake-up queue.

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{Rules, units};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RedisConfig {
    /// Required by some roles only; see [`Config::queue_options`](super::Config::queue_options).
    #[serde(with = "units::secret")]
    pub url: Option<SecretString>,
    pub prefix: String,
    pub list_cap: usize,
    #[serde(rename = "command_timeout_seconds", with = "units::seconds")]
    pub command_timeout: Duration,
    #[serde(rename = "connect_timeout_seconds", with = "units::seconds")]
    pub connect_timeout: Duration,
}

impl RedisConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        rules.require(
            !self.prefix.is_empty() && self.prefix.chars().all(plain),
            "redis.prefix must not be empty and may hold letters, digits, '-', '_' and '.' only",
        );
        rules.require(
            (1..=100_000).contains(&self.list_cap),
            "redis.list_cap must be 1 to 100,000: the list says that there is work, it does not hold the work",
        );
        rules.positive("redis.command_timeout_seconds", self.command_timeout);
        rules.positive("redis.connect_timeout_seconds", self.connect_timeout);
    }
}
