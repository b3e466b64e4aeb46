//! `[database]`: PostgreSQL, the source of truth.

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{Rules, units};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct DatabaseConfig {
    /// Required by some roles only; see [`Config::database_url`](super::Config::database_url).
    #[serde(with = "units::secret")]
    pub url: Option<SecretString>,
    pub max_connections: u32,
    #[serde(rename = "acquire_timeout_seconds", with = "units::seconds")]
    pub acquire_timeout: Duration,
    #[serde(rename = "statement_timeout_seconds", with = "units::seconds")]
    pub statement_timeout: Duration,
    #[serde(rename = "lock_timeout_seconds", with = "units::seconds")]
    pub lock_timeout: Duration,
}

impl DatabaseConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(
            self.max_connections >= 2,
            "database.max_connections must be at least 2: a worker has one of them for its heartbeat",
        );
        rules.positive("database.acquire_timeout_seconds", self.acquire_timeout);
        rules.positive("database.statement_timeout_seconds", self.statement_timeout);
        rules.positive("database.lock_timeout_seconds", self.lock_timeout);
        rules.require(
            self.lock_timeout < self.statement_timeout,
            "database.lock_timeout_seconds must be shorter than database.statement_timeout_seconds, \
             or a wait for a lock is never told from a slow statement",
        );
    }
}
