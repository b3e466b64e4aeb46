//! The process's memory: over its limit a worker stops claiming (core-rules 5), and what it had is known after its death.

use std::sync::atomic::{AtomicU64, Ordering};

/// The share of the machine's memory that is the limit when none is configured.
const DEFAULT_SHARE: (u64, u64) = (3, 4);
/// Pages of every platform the process runs on; the kernel reports in pages.
const PAGE: u64 = 4_096;

/// The process's memory against its limit.
#[derive(Debug)]
pub(crate) struct MemoryGate {
    limit: u64,
    used: AtomicU64,
}

impl MemoryGate {
    /// `limit` in bytes; 0 means three quarters of the machine's memory.
    pub(crate) fn new(limit: u64) -> Self {
        let default = || {
            read_kib("/proc/meminfo", "MemTotal:").map_or(u64::MAX, |total| total / DEFAULT_SHARE.1 * DEFAULT_SHARE.0)
        };
        let gate = Self { limit: if limit == 0 { default() } else { limit }, used: AtomicU64::new(0) };
        gate.measure();
        gate
    }

    /// Reads the process's resident size again. Where the kernel does not tell it, the gate stays open.
    pub(crate) fn measure(&self) {
        let used = resident().unwrap_or_default();
        let was_open = self.is_open();
        self.used.store(used, Ordering::Relaxed);
        if was_open && !self.is_open() {
            tracing::warn!(used, limit = self.limit, "over the memory limit; nothing is claimed until it falls");
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.limit
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
