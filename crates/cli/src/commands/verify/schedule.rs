//! Which fault comes next, and when: the same for the same seed.
//!
//! Faults come one after the other, each kind once in every round, in an order of its own each round. One at a time, because only
//! then can a recovery be laid at the door of one fault; what overlaps is the recovery of the last with the next.

use std::time::Duration;

use super::faults::FaultKind;

/// The load runs undisturbed for so long at first.
const WARM_UP: Duration = Duration::from_secs(4);
/// Between two faults, where recoveries are measured: the bar is ten seconds, and the rate before the next needs some as well.
const MEASURED_GAP: Duration = Duration::from_secs(13);
/// Between two faults otherwise.
const GAP: Duration = Duration::from_secs(2);

/// `SplitMix64`: small, and the same everywhere for ever.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// A sequence.
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

    /// A number below `limit`, which is not zero.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        // The bias of the remainder is of no interest for a handful of victims.
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }
}

/// When faults come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The pause after each.
    gap: Duration,
    /// From the beginning of one to the beginning of the next, instead.
    every: Option<Duration>,
    /// Until when they do; one whole round when absent.
    lasts: Option<Duration>,
}

impl Pace {
    pub(super) fn new(is_timed: bool, every: Option<Duration>, lasts: Option<Duration>) -> Self {
        Self { gap: if is_timed { MEASURED_GAP } else { GAP }, every, lasts }
    }
}

/// The faults in their order.
#[derive(Debug)]
pub(super) struct Schedule {
    kinds: Vec<FaultKind>,
    round: Vec<FaultKind>,
    pace: Pace,
    /// How many came.
    came: usize,
    /// When the last one began.
    began_at: Duration,
}

impl Schedule {
    /// `kinds` round after round.
    pub(super) fn new(kinds: Vec<FaultKind>, pace: Pace) -> Self {
        Self { kinds, round: Vec::new(), pace, came: 0, began_at: Duration::ZERO }
    }

    /// The next fault, and how long to wait for it, when the load has run for so long. `None` when it is over.
    pub(super) fn next(&mut self, elapsed: Duration, random: &mut Random) -> Option<(Duration, FaultKind)> {
        let Pace { gap, every, lasts } = self.pace;
        let begins_at = match every {
            _ if self.came == 0 => gap.max(WARM_UP),
            // One that took longer than there is between two is followed at once.
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

    /// When the load ends: after an undisturbed time in which the last fault is recovered from.
    pub(super) fn ends_at(&self, elapsed: Duration) -> Duration {
        self.pace.lasts.unwrap_or(elapsed + self.pace.gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What comes when each fault takes `takes`, and when.
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
    fn a_round_has_every_fault_once_and_a_seed_has_one_order() {
        let faults = two_rounds(7);
        assert_eq!(faults.len(), 2 * FaultKind::ALL.len());
        for round in faults.chunks(FaultKind::ALL.len()) {
            assert!(FaultKind::ALL.iter().all(|kind| round.contains(kind)), "{round:?}");
        }
        assert_eq!(faults, two_rounds(7));
        assert_ne!(faults, two_rounds(8));
    }

    #[test]
    fn without_a_duration_there_is_one_round_however_long_it_takes() {
        for is_timed in [true, false] {
            let (faults, _) = all(&FaultKind::ALL, Pace::new(is_timed, None, None), 100 * SECOND, 7);
            assert_eq!(faults.len(), FaultKind::ALL.len());
            assert!(FaultKind::ALL.iter().all(|kind| faults.contains(kind)), "{faults:?}");
        }
        assert_eq!(all(&[], Pace::new(true, None, None), SECOND, 1).0, []);
        assert_eq!(all(&[], Pace::new(true, None, Some(60 * SECOND)), SECOND, 1).0, []);
    }

    #[test]
    fn faults_come_as_often_as_asked_for_or_as_they_can() {
        let every = Pace::new(false, Some(20 * SECOND), Some(90 * SECOND));
        assert_eq!(all(&[FaultKind::RollingRestart], every, 5 * SECOND, 1).1, [4, 24, 44, 64, 84]);
        assert_eq!(all(&[FaultKind::RollingRestart], every, 30 * SECOND, 1).1, [4, 34, 64]);
    }
}
