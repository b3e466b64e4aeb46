//! `[api]`: the HTTP surface and its limits.

use std::{net::SocketAddr, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{Rules, units};

/// Shorter peppers could be guessed from a stolen table of key hashes.
const PEPPER_MIN: usize = 32;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ApiConfig {
    pub listen: SocketAddr,
    /// `None` until somebody needs it; see [`Config::key_pepper`](super::Config::key_pepper).
    #[serde(with = "units::secret")]
    pub key_pepper: Option<SecretString>,
    pub batch_max: usize,
    pub input_max_bytes: usize,
    pub batch_max_bytes: usize,
    pub metadata_max_bytes: usize,
    pub page_size: u32,
    pub page_size_max: u32,
    pub streams_max: usize,
    #[serde(rename = "stream_keepalive_seconds", with = "units::seconds")]
    pub stream_keepalive: Duration,
    #[serde(rename = "wait_max_seconds", with = "units::seconds")]
    pub wait_max: Duration,
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
        rules.require((1..=1_000).contains(&self.batch_max), "api.batch_max must be 1 to 1,000");
        rules.require(
            self.input_max_bytes <= self.batch_max_bytes,
            "api.input_max_bytes must not exceed api.batch_max_bytes, or the largest input fits no batch",
        );
        rules.require(
            self.batch_max_bytes <= 256 << 20,
            "api.batch_max_bytes must not exceed 256 MiB: a body is held in memory while it is checked",
        );
        rules.require(
            self.metadata_max_bytes <= 1 << 20,
            "api.metadata_max_bytes must not exceed 1 MiB: metadata is indexed",
        );
        rules.require(
            (1..=self.page_size_max).contains(&self.page_size) && self.page_size_max <= 1_000,
            "api.page_size must be at least 1 and at most api.page_size_max, which must be at most 1,000",
        );
        rules.positive("api.stream_keepalive_seconds", self.stream_keepalive);
        rules.positive("api.shutdown_seconds", self.shutdown);
        rules.require(
            self.wait_max <= Duration::from_secs(600),
            "api.wait_max_seconds must be at most 600: each waiting caller holds a connection",
        );
    }
}
