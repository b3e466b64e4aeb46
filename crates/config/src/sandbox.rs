//! `[sandbox]`: resource limits of code, and access to the sandbox.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Rules, units};

/// Longest run that the contract's schema advertises to callers.
const ADVERTISED: Duration = Duration::from_secs(30);
/// Minimum length in characters. A caller with unlimited attempts could guess a shorter token.
const TOKEN_MIN: usize = 16;
/// Rule of the settings that are paths from the root.
const ABSOLUTE: &str =
    "sandbox.bwrap, sandbox.scratch_dir and each of sandbox.readable must be absolute paths, and not / itself";

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct SandboxConfig {
    /// Address of the sandbox for workers and the API; `None` if there is none.
    #[serde(with = "units::text")]
    pub url: Option<String>,
    pub listen: SocketAddr,
    #[serde(with = "units::secret")]
    pub token: Option<SecretString>,
    pub confinement: SandboxConfinement,
    pub dangerously_run_unconfined: bool,
    #[serde(deserialize_with = "units::list::deserialize")]
    pub languages: Vec<String>,
    pub python: PathBuf,
    pub bash: PathBuf,
    #[serde(with = "units::text")]
    pub bwrap: Option<String>,
    #[serde(deserialize_with = "units::list::deserialize")]
    pub readable: Vec<String>,
    #[serde(with = "units::text")]
    pub scratch_dir: Option<String>,
    pub first_user: u32,
    pub concurrency: usize,
    pub queue_max: usize,
    #[serde(rename = "queue_seconds", with = "units::seconds")]
    pub queue: Duration,
    #[serde(rename = "timeout_seconds", with = "units::seconds")]
    pub timeout: Duration,
    #[serde(rename = "timeout_max_seconds", with = "units::seconds")]
    pub timeout_max: Duration,
    pub memory_bytes: u64,
    pub processes_max: u64,
    pub open_files_max: u64,
    pub files_bytes: u64,
    pub files_max: u64,
    pub output_bytes: usize,
    pub result_bytes: usize,
    pub code_bytes: usize,
    pub request_bytes: usize,
    #[serde(rename = "shutdown_seconds", with = "units::seconds")]
    pub shutdown: Duration,
}

/// Mechanism that confines the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxConfinement {
    /// The strongest mechanism that works on this machine.
    Auto,
    Namespaces,
    Landlock,
}

impl SandboxConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        let is_http = |url: &String| Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        rules.require(self.url.as_ref().is_none_or(is_http), "sandbox.url must be an http or https URL");
        if let Some(token) = &self.token {
            let token = token.expose_secret();
            rules.require(
                token.starts_with("env://") || token.len() >= TOKEN_MIN,
                "sandbox.token must have at least 16 characters",
            );
        }
        let known = |name: &String| name == "python" || name == "bash";
        rules.require(
            !self.languages.is_empty() && self.languages.iter().all(known),
            "sandbox.languages must name python, bash or both",
        );
        for path in [&self.python, &self.bash] {
            rules.require(path.is_absolute(), "sandbox.python and sandbox.bash must be absolute paths");
        }
        let paths = self.readable.iter().chain(&self.bwrap).chain(&self.scratch_dir);
        for path in paths {
            rules.require(path.starts_with('/') && path != "/", ABSOLUTE);
        }
        rules.require((1..=256).contains(&self.concurrency), "sandbox.concurrency must be 1 to 256 runs at a time");
        rules.require(self.queue_max <= 10_000, "sandbox.queue_max must be at most 10,000");
        rules.require(
            self.first_user >= 1_000 && self.first_user <= u32::MAX - 1_000,
            "sandbox.first_user must be at least 1,000: the users below it are the system's",
        );
        rules.require(
            (Duration::from_secs(1)..=self.timeout_max).contains(&self.timeout) && self.timeout_max <= ADVERTISED,
            "sandbox.timeout_seconds must be at least 1 and at most sandbox.timeout_max_seconds, which must be at most \
             30",
        );
        rules.require(
            (64 << 20..=64 << 30).contains(&self.memory_bytes),
            "sandbox.memory_bytes must be 64 MiB to 64 GiB: an interpreter needs the first to start",
        );
        rules.require((4..=4_096).contains(&self.processes_max), "sandbox.processes_max must be 4 to 4,096");
        rules.require((32..=4_096).contains(&self.open_files_max), "sandbox.open_files_max must be 32 to 4,096");
        rules.require(
            (1 << 20..=16 << 30).contains(&self.files_bytes) && (16..=1_000_000).contains(&self.files_max),
            "sandbox.files_bytes must be 1 MiB to 16 GiB, and sandbox.files_max 16 to 1,000,000",
        );
        rules.require(
            (1_024..=4 << 20).contains(&self.output_bytes) && (1_024..=16 << 20).contains(&self.result_bytes),
            "sandbox.output_bytes must be 1 KiB to 4 MiB, and sandbox.result_bytes 1 KiB to 16 MiB: they are held in \
             memory",
        );
        rules.require(
            self.code_bytes <= self.request_bytes && (1_024..=16 << 20).contains(&self.request_bytes),
            "sandbox.request_bytes must be 1 KiB to 16 MiB, and at least sandbox.code_bytes",
        );
        rules.require(
            self.shutdown >= self.timeout_max,
            "sandbox.shutdown_seconds must be at least sandbox.timeout_max_seconds, or a stop ends code that is in \
             time",
        );
    }
}
