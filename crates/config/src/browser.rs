//! `[browser]`: the browser of the tools `browser_*`, and the limits of one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Rules, units};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct BrowserConfig {
    /// Path of `chromium-headless-shell`; `None` if agents may not have the tools.
    #[serde(with = "units::text")]
    pub program: Option<String>,
    pub dangerously_without_sandbox: bool,
    /// User id of the browser if the worker is root.
    pub user: u32,
    /// Maximum browsers of one process.
    pub max_browsers: usize,
    /// Of all processes of one browser together; also the limit of each process.
    pub memory_bytes: u64,
    /// Maximum bytes that one attempt may transfer.
    pub transfer_bytes: u64,
    #[serde(rename = "call_seconds", with = "units::seconds")]
    pub call: Duration,
    #[serde(rename = "load_seconds", with = "units::seconds")]
    pub load: Duration,
    #[serde(rename = "idle_seconds", with = "units::seconds")]
    pub idle: Duration,
    /// Hosts in private networks that pages may be at, as `host` or `host:port`.
    #[serde(deserialize_with = "units::list::deserialize")]
    pub private_hosts: Vec<String>,
    #[serde(with = "units::text")]
    pub scratch_dir: Option<String>,
}

impl BrowserConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        for path in self.program.iter().chain(&self.scratch_dir) {
            rules.require(path.starts_with('/'), "browser.program and browser.scratch_dir must be absolute paths");
        }
        rules.require(self.user >= 1_000, "browser.user must be at least 1,000: the users below it are the system's");
        rules.require((1..=1_000).contains(&self.max_browsers), "browser.max_browsers must be 1 to 1,000");
        rules.require(
            (256 << 20..=64 << 30).contains(&self.memory_bytes),
            "browser.memory_bytes must be 256 MiB to 64 GiB: a browser needs the first to start",
        );
        rules.require(self.transfer_bytes >= 1 << 20, "browser.transfer_bytes must be at least 1 MiB");
        rules.require(
            Duration::from_secs(1) <= self.load && self.load < self.call && self.call < self.idle,
            "browser.load_seconds must be at least 1 and less than browser.call_seconds, which must be less than \
             browser.idle_seconds",
        );
        rules.require(
            self.private_hosts.iter().all(|host| !host.is_empty() && !host.contains(['/', '@', ' ', '*'])),
            "each of browser.private_hosts must be a host, or a host with a port",
        );
    }
}
