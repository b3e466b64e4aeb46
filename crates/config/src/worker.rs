//! `[worker]`: concurrency of a process, and the timings of its lease.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Rules, units};
use longhaul_domain::QueueName;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct WorkerConfig {
    pub concurrency: usize,
    #[serde(deserialize_with = "units::list::deserialize")]
    pub queues: Vec<String>,
    pub claim_batch_max: usize,
    #[serde(rename = "lease_seconds", with = "units::seconds")]
    pub lease: Duration,
    #[serde(rename = "renew_seconds", with = "units::seconds")]
    pub renew: Duration,
    #[serde(rename = "reaper_tick_seconds", with = "units::seconds")]
    pub reaper_tick: Duration,
    #[serde(rename = "sweep_tick_seconds", with = "units::seconds")]
    pub sweep_tick: Duration,
    #[serde(rename = "reconcile_seconds", with = "units::seconds")]
    pub reconcile: Duration,
    #[serde(rename = "drain_seconds", with = "units::seconds")]
    pub drain: Duration,
    /// Longest stall of the async executor before the process aborts.
    #[serde(rename = "wedged_seconds", with = "units::seconds")]
    pub wedged: Duration,
    /// In bytes; 0 stands for three quarters of the memory of the machine or container.
    pub memory_limit_bytes: u64,
    pub journal_loads_max: usize,
    pub parallel_calls_max: usize,
    /// Name of this build. Empty stands for the version and a fingerprint of the executable.
    pub build: String,
    /// Address of the endpoint for metrics and health; `None` disables it.
    #[serde(with = "units::address")]
    pub metrics_listen: Option<SocketAddr>,
    pub quarantine: QuarantineConfig,
}

/// `[worker.quarantine]`: executions that kill workers.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct QuarantineConfig {
    pub auto_release: bool,
    pub hold_after: u32,
    #[serde(rename = "hold_window_seconds", with = "units::seconds")]
    pub hold_window: Duration,
    pub release_per_minute: u32,
}

/// Longest build name, in bytes. Executions store the names of the builds they killed.
const MAX_BUILD: usize = 64;

impl WorkerConfig {
    /// Returns the queues as names. [`Config::load`](super::Config::load) has validated them; an invalid name is
    /// skipped.
    pub fn queue_names(&self) -> Vec<QueueName> {
        self.queues.iter().filter_map(|name| QueueName::new(name).ok()).collect()
    }

    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(
            (1..=100_000).contains(&self.concurrency),
            "worker.concurrency must be 1 to 100,000 executions at a time",
        );
        rules.require(!self.queues.is_empty(), "worker.queues must name at least one queue");
        for name in &self.queues {
            if let Err(error) = QueueName::new(name) {
                rules.broken(format!("worker.queues: {error}"));
            }
        }
        rules.require((1..=1_000).contains(&self.claim_batch_max), "worker.claim_batch_max must be 1 to 1,000");
        self.check_clocks(rules);
        rules.require(
            self.build.len() <= MAX_BUILD
                && self.build.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')),
            "worker.build must be at most 64 letters, digits, '.', '_' and '-'",
        );
        rules.positive("worker.quarantine.hold_window_seconds", self.quarantine.hold_window);
        rules.require(
            self.quarantine.hold_after > 0 && self.quarantine.release_per_minute > 0,
            "worker.quarantine.hold_after and worker.quarantine.release_per_minute must be at least 1",
        );
        rules.require((1..=1_000).contains(&self.journal_loads_max), "worker.journal_loads_max must be 1 to 1,000");
        rules.require(
            (1..=1_000_000).contains(&self.parallel_calls_max),
            "worker.parallel_calls_max must be 1 to 1,000,000 tool calls at a time",
        );
    }

    fn check_clocks(&self, rules: &mut Rules) {
        for (key, duration) in [
            ("worker.lease_seconds", self.lease),
            ("worker.renew_seconds", self.renew),
            ("worker.reaper_tick_seconds", self.reaper_tick),
            ("worker.sweep_tick_seconds", self.sweep_tick),
            ("worker.reconcile_seconds", self.reconcile),
            ("worker.drain_seconds", self.drain),
        ] {
            rules.positive(key, duration);
        }
        rules.require(
            self.renew.saturating_mul(2) < self.lease,
            "worker.renew_seconds must be less than half of worker.lease_seconds: \
             one late renewal would otherwise cost the lease",
        );
        rules.require(
            self.lease <= Duration::from_secs(60),
            "worker.lease_seconds must be at most 60: executions of a dead worker stand still for so long",
        );
        rules.require(
            self.reaper_tick <= self.lease,
            "worker.reaper_tick_seconds must not exceed worker.lease_seconds, or a dead worker is found late",
        );
        rules.require(
            self.reconcile < Duration::from_secs(15),
            "worker.reconcile_seconds must be under 15: within that time a claim nobody holds must be found",
        );
        rules.require(
            self.wedged >= Duration::from_secs(3),
            "worker.wedged_seconds must be at least 3: the executor says once a second that it moves",
        );
        rules.require(
            self.drain > self.renew,
            "worker.drain_seconds must be longer than worker.renew_seconds, since a drain renews the lease until it \
             ends",
        );
    }
}
