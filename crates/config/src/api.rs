//! `[api]`: the HTTP surface and its limits.

use std::{net::SocketAddr, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{Rules, units};

/// Minimum length in characters. A shorter pepper could be guessed from a stolen table of key hashes.
const PEPPER_MIN: usize = 32;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ApiConfig {
    pub listen: SocketAddr,
    /// Required by some roles only; see [`Config::key_pepper`](super::Config::key_pepper).
    #[serde(with = "units::secret")]
    pub key_pepper: Option<SecretString>,
    pub streams_max: usize,
    pub connections_max: usize,
    pub secure_cookies: bool,
    #[serde(rename = "shutdown_seconds", with = "units::seconds")]
    pub shutdown: Duration,
}

impl ApiConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        if let Some(pepper) = &self.key_pepper {
            rules.require(
                pepper.expose_secret().starts_with("env://") || pepper.expose_secret().len() >= PEPPER_MIN,
                "api.key_pepper must have at least 32 characters",
            );
        }
        rules.require(self.connections_max > 0, "api.connections_max must be at least 1");
        rules.positive("api.shutdown_seconds", self.shutdown);
    }
}
