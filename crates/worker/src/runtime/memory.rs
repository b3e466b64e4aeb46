//! The process's memory: over its limit a worker stops claiming (core-rules 5), and what it had is known after its death.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The share of the machine's memory that is the limit when none is configured.
const DEFAULT_SHARE: (u64, u64) = (3, 4);
/// How long a reading is good for: at most so much later than it should a worker stops claiming, and short claims do not each pay for one.
const READING_LIFE: Duration = Duration::from_millis(250);
/// Pages of every platform the process runs on; the kernel reports in pages.
const PAGE: u64 = 4_096;

/// The process's memory against its limit.
#[derive(Debug)]
pub(crate) struct MemoryGate {
    limit: u64,
    last: Mutex<Option<Reading>>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    is_open: bool,
}

impl MemoryGate {
    /// `limit` in bytes; 0 means three quarters of the machine's memory.
    pub(crate) fn new(limit: u64) -> Self {
        let default = || {
            read_kib("/proc/meminfo", "MemTotal:").map_or(u64::MAX, |total| total / DEFAULT_SHARE.1 * DEFAULT_SHARE.0)
        };
        Self { limit: if limit == 0 { default() } else { limit }, last: Mutex::default() }
    }

    /// Whether the process is below its limit. Where the kernel does not tell its resident size, it is.
    pub(crate) fn is_open(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = last.filter(|reading| reading.at.elapsed() < READING_LIFE) {
            return reading.is_open;
        }
        let used = resident().unwrap_or_default();
        let is_open = used < self.limit;
        if !is_open && last.is_none_or(|before| before.is_open) {
            tracing::warn!(used, limit = self.limit, "over the memory limit; nothing is claimed until it falls");
        }
        *last = Some(Reading { at: Instant::now(), is_open });
        is_open
    }
}

/// The process's resident size in bytes, where the kernel tells it.
pub(crate) fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * PAGE)
}

fn read_kib(path: &str, label: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(label))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_over_its_limit_is_not_open() {
        assert!(!MemoryGate::new(1).is_open());
        assert!(MemoryGate::new(0).is_open());
    }
}
