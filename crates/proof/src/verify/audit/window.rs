//! The commit window: answers that a fault kept from the record.

use chrono::{DateTime, Utc};

use crate::verify::{fault_kind::FaultKind, seen::Fault};

/// Counts of repetitions that are not violations.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Window {
    /// Model calls answered within the commit window of a fault and repeated.
    pub calls: usize,
    /// Longest time from such an answer to the start of the nearest fault, in seconds.
    pub longest: f64,
    /// The same for answers that only kills of a worker explain.
    pub longest_before_a_kill: f64,
    /// Longest time from the end of a fault to such an answer, in seconds.
    pub longest_after: f64,
    /// Requests that a process was about to send when it was paused, and sent on waking.
    pub sent_on_waking: usize,
    /// Repeated calls of idempotent or read-only tools under the same key.
    pub tool_calls: usize,
}

impl Window {
    /// Counts an answer that each of `faults` may have kept from the record, with its distance from the nearest.
    pub(super) fn count<'a>(&mut self, faults: impl Iterator<Item = &'a Fault> + Clone, answered_at: DateTime<Utc>) {
        let is_of_kills = faults.clone().all(|fault| fault.kind == FaultKind::KillWorker);
        let distances = faults.map(|fault| (fault.from - answered_at, answered_at - fault.until));
        let (before, after) = distances.min_by_key(|(before, after)| *before.max(after)).unwrap_or_default();
        self.calls += 1;
        self.longest = self.longest.max(before.as_seconds_f64());
        if is_of_kills {
            self.longest_before_a_kill = self.longest_before_a_kill.max(before.as_seconds_f64());
        }
        self.longest_after = self.longest_after.max(after.as_seconds_f64());
    }
}
