//! Memory of the process: over its limit the worker stops claiming (core-rules 5); heartbeats publish it for
//! reports on deaths.

use std::time::{Duration, Instant};

use longhaul_shared::memory::resident;
use parking_lot::{Mutex, MutexGuard};

/// Default limit as a fraction of the machine's memory.
const DEFAULT_SHARE: (u64, u64) = (3, 4);
/// Lifetime of a reading. It bounds how late the worker stops claiming and how often short claims read the memory.
const READING_LIFE: Duration = Duration::from_millis(250);
/// Claimed executions that invalidate a reading: each may load a journal of many megabytes.
const READING_CLAIMS: usize = 32;

/// Admission by memory: open while the process is below its limit.
#[derive(Debug)]
pub(crate) struct MemoryGate {
    limit: u64,
    resident: fn() -> Option<u64>,
    last: Mutex<Option<Reading>>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    is_open: bool,
    /// Executions claimed since the reading.
    claimed: usize,
}

impl MemoryGate {
    /// `limit` in bytes; 0 means three quarters of the machine's memory.
    pub(crate) fn new(limit: u64) -> Self {
        let default = || {
            read_kib("/proc/meminfo", "MemTotal:").map_or(u64::MAX, |total| total / DEFAULT_SHARE.1 * DEFAULT_SHARE.0)
        };
        Self { limit: if limit == 0 { default() } else { limit }, resident, last: Mutex::default() }
    }

    /// True if the process is below its limit, or if the kernel does not report its resident size.
    pub(crate) fn is_open(&self) -> bool {
        let mut last = self.last();
        let is_good = |reading: &Reading| reading.at.elapsed() < READING_LIFE && reading.claimed < READING_CLAIMS;
        if let Some(reading) = last.filter(is_good) {
            return reading.is_open;
        }
        let used = (self.resident)().unwrap_or_default();
        let is_open = used < self.limit;
        if !is_open && last.is_none_or(|before| before.is_open) {
            tracing::warn!(used, limit = self.limit, "over the memory limit; nothing is claimed until it falls");
        }
        *last = Some(Reading { at: Instant::now(), is_open, claimed: 0 });
        is_open
    }

    /// Counts executions claimed since the last reading: after many, the memory is read again.
    pub(crate) fn claimed(&self, claimed: usize) {
        if let Some(reading) = &mut *self.last() {
            reading.claimed += claimed;
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Reading>> {
        self.last.lock()
    }
}

fn read_kib(path: &str, label: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(label))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1_024)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn memory_gate_closes_over_its_limit() {
        assert!(!MemoryGate::new(1).is_open());
        assert!(MemoryGate::new(0).is_open());
    }

    #[test]
    fn memory_reading_expires_after_too_many_claims() {
        static USED: AtomicU64 = AtomicU64::new(1);
        let gate = MemoryGate { resident: || Some(USED.load(Ordering::Relaxed)), ..MemoryGate::new(2) };
        assert!(gate.is_open());
        USED.store(2, Ordering::Relaxed);
        // Or the reading has expired because the machine was slow.
        let since = Instant::now();
        gate.claimed(READING_CLAIMS - 1);
        assert!(gate.is_open() || since.elapsed() >= READING_LIFE);
        gate.claimed(1);
        assert!(!gate.is_open());
    }
}
