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

/// Connection and limits of the queue.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// URL with scheme `redis://` or `rediss://`; may carry a password.
    pub url: SecretString,
    /// First part of every key. Installations that share a Redis need different prefixes.
    pub prefix: String,
    /// Maximum number of wake-ups in a queue's list. A larger list would not speed anything up: under backlog a
    /// claim takes the next executions of the queue regardless of the list.
    pub list_cap: usize,
    /// Timeout of one command. The `redis` crate's default of 500 ms would treat a slow script as an outage.
    pub command_timeout: Duration,
    /// Timeout of one connection attempt, including the handshake.
    pub connect_timeout: Duration,
}

impl QueueOptions {
    /// Returns the default options for a server and a prefix.
    pub fn new(url: SecretString, prefix: impl Into<String>) -> Self {
        Self {
            url,
            prefix: prefix.into(),
            list_cap: 1_000,
            command_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(1),
        }
    }
}
