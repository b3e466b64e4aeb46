//! The order and the times of the faults, determined by the seed.
//!
//! Every round injects each kind of fault once, in a new random order. Faults do not overlap, so that a recovery
//! belongs to one fault; only the recovery from a fault may overlap the next fault.

use std::time::Duration;

use super::fault_kind::FaultKind;

/// Time of undisturbed load before the first fault.
const WARM_UP: Duration = Duration::from_secs(4);
/// Pause between two faults when recoveries are measured: the bar is ten seconds, and the rate before the next fault
/// is measured too.
const MEASURED_GAP: Duration = Duration::from_secs(13);
/// Pause between two faults otherwise.
const GAP: Duration = Duration::from_secs(2);

/// `SplitMix64`: small, and the same sequence on every platform.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Starts the sequence of a seed.
    #[must_use]
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be zero.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        // The modulo bias does not matter for a handful of victims.
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }
}

/// The intervals of the faults.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Pause after each fault.
    gap: Duration,
    /// Interval between the starts of two faults; replaces `gap`.
    every: Option<Duration>,
    /// Total duration; one whole round if absent.
    lasts: Option<Duration>,
}

impl Pace {
    pub(super) fn new(is_timed: bool, every: Option<Duration>, lasts: Option<Duration>) -> Self {
        Self { gap: if is_timed { MEASURED_GAP } else { GAP }, every, lasts }
    }
}

#[derive(Debug)]
pub(super) struct Schedule {
    kinds: Vec<FaultKind>,
    round: Vec<FaultKind>,
    pace: Pace,
    /// Number of faults so far.
    came: usize,
    /// Start of the last fault, relative to the start of the load.
    began_at: Duration,
}

impl Schedule {
    /// Schedules `kinds` round after round.
    pub(super) fn new(kinds: Vec<FaultKind>, pace: Pace) -> Self {
        Self { kinds, round: Vec::new(), pace, came: 0, began_at: Duration::ZERO }
    }

    /// The next fault and the wait before it, at `elapsed` since the start of the load. `None` when the schedule is
    /// over.
    pub(super) fn next(&mut self, elapsed: Duration, random: &mut Random) -> Option<(Duration, FaultKind)> {
        let Pace { gap, every, lasts } = self.pace;
        let begins_at = match every {
            _ if self.came == 0 => gap.max(WARM_UP),
            // A fault that took longer than the interval is followed at once.
            Some(every) => (self.began_at + every).max(elapsed),
            None => elapsed + gap,
        };
        let is_over = match lasts {
            Some(lasts) => begins_at + gap > lasts,
            None => self.came >= self.kinds.len(),
        };
        if is_over {
            return None;
        }
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
            for last in (1..self.round.len()).rev() {
                self.round.swap(last, random.below(last + 1));
            }
        }
        (self.came, self.began_at) = (self.came + 1, begins_at);
        self.round.pop().map(|kind| (begins_at.saturating_sub(elapsed), kind))
    }

    /// End of the load, which leaves time to recover from the last fault.
    pub(super) fn ends_at(&self, elapsed: Duration) -> Duration {
        self.pace.lasts.unwrap_or(elapsed + self.pace.gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The faults and their times if each takes `takes`.
    fn all(kinds: &[FaultKind], pace: Pace, takes: Duration, seed: u64) -> (Vec<FaultKind>, Vec<u64>) {
        let (mut schedule, mut random) = (Schedule::new(kinds.to_vec(), pace), Random::new(seed));
        let (mut elapsed, mut came, mut at) = (Duration::ZERO, Vec::new(), Vec::new());
        while let Some((wait, kind)) = schedule.next(elapsed, &mut random) {
            came.push(kind);
            at.push((elapsed + wait).as_secs());
            elapsed += wait + takes;
        }
        (came, at)
    }

    fn two_rounds(seed: u64) -> Vec<FaultKind> {
        let lasts = u32::try_from(2 * FaultKind::ALL.len()).unwrap() * (GAP + SECOND) + WARM_UP;
        all(&FaultKind::ALL, Pace::new(false, None, Some(lasts)), SECOND, seed).0
    }

    #[test]
    fn seeded_round_has_every_fault_once() {
        let faults = two_rounds(7);
        assert_eq!(faults.len(), 2 * FaultKind::ALL.len());
        for round in faults.chunks(FaultKind::ALL.len()) {
            assert!(FaultKind::ALL.iter().all(|kind| round.contains(kind)), "{round:?}");
        }
        assert_eq!(faults, two_rounds(7));
        assert_ne!(faults, two_rounds(8));
    }

    #[test]
    fn schedule_without_duration_is_one_round() {
        for is_timed in [true, false] {
            let (faults, _) = all(&FaultKind::ALL, Pace::new(is_timed, None, None), 100 * SECOND, 7);
            assert_eq!(faults.len(), FaultKind::ALL.len());
            assert!(FaultKind::ALL.iter().all(|kind| faults.contains(kind)), "{faults:?}");
        }
        assert_eq!(all(&[], Pace::new(true, None, None), SECOND, 1).0, []);
        assert_eq!(all(&[], Pace::new(true, None, Some(60 * SECOND)), SECOND, 1).0, []);
    }

    #[test]
    fn faults_keep_their_interval_if_possible() {
        let every = Pace::new(false, Some(20 * SECOND), Some(90 * SECOND));
        assert_eq!(all(&[FaultKind::RollingRestart], every, 5 * SECOND, 1).1, [4, 24, 44, 64, 84]);
        assert_eq!(all(&[FaultKind::RollingRestart], every, 30 * SECOND, 1).1, [4, 34, 64]);
    }
}
