//! Limit of a claim by the state of the process: its memory and its trouble with Postgres.

use std::time::{Duration, Instant};

use longhaul_store::database::outage::{ClaimGate, Trouble};
use parking_lot::Mutex;

use super::memory::MemoryGate;

/// Pause between claims of one execution while the claim gate is half-open.
const PROBE_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ClaimLimit {
    memory: MemoryGate,
    probed_at: Mutex<Option<Instant>>,
}

impl ClaimLimit {
    pub(super) fn new(memory: MemoryGate) -> Self {
        Self { memory, probed_at: Mutex::default() }
    }

    /// The number of executions to claim, at most `max`. Writes of this process that fail limit it, because claimed
    /// executions could not proceed.
    pub(super) fn of(&self, max: usize, trouble: &Trouble) -> usize {
        let max = match trouble.gate() {
            ClaimGate::Open => max,
            ClaimGate::HalfOpen if self.may_probe() => max.min(1),
            ClaimGate::HalfOpen | ClaimGate::Closed => 0,
        };
        if max > 0 && self.memory.is_open() { max } else { 0 }
    }

    /// True if claims are not limited.
    pub(super) fn is_open(&self, trouble: &Trouble) -> bool {
        matches!(trouble.gate(), ClaimGate::Open) && self.memory.is_open()
    }

    /// Counts claimed executions.
    pub(super) fn claimed(&self, claimed: usize) {
        self.memory.claimed(claimed);
    }

    fn may_probe(&self) -> bool {
        let mut probed_at = self.probed_at.lock();
        let may_probe = probed_at.is_none_or(|at| at.elapsed() >= PROBE_PAUSE);
        if may_probe {
            *probed_at = Some(Instant::now());
        }
        may_probe
    }
}
