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

/// The faults in their order.
#[derive(Debug)]
pub(super) struct Schedule {
    kinds: Vec<FaultKind>,
    round: Vec<FaultKind>,
    gap: Duration,
    is_first: bool,
}

impl Schedule {
    /// `kinds` round after round.
    pub(super) fn new(kinds: Vec<FaultKind>, is_timed: bool) -> Self {
        Self { kinds, round: Vec::new(), gap: if is_timed { MEASURED_GAP } else { GAP }, is_first: true }
    }

    /// How long to wait, and what to do then. `None` when there is nothing to do.
    pub(super) fn next(&mut self, random: &mut Random) -> Option<(Duration, FaultKind)> {
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
            for last in (1..self.round.len()).rev() {
                self.round.swap(last, random.below(last + 1));
            }
        }
        let wait = if std::mem::take(&mut self.is_first) { self.gap.max(WARM_UP) } else { self.gap };
        self.round.pop().map(|kind| (wait, kind))
    }

    /// The undisturbed end of the load, in which the last fault is recovered from.
    pub(super) fn tail(&self) -> Duration {
        self.gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_rounds(seed: u64) -> Vec<FaultKind> {
        let (mut schedule, mut random) = (Schedule::new(FaultKind::ALL.to_vec(), false), Random::new(seed));
        (0..2 * FaultKind::ALL.len()).map(|_| schedule.next(&mut random).unwrap().1).collect()
    }

    #[test]
    fn a_round_has_every_fault_once_and_a_seed_has_one_order() {
        let faults = two_rounds(7);
        for round in faults.chunks(FaultKind::ALL.len()) {
            assert!(FaultKind::ALL.iter().all(|kind| round.contains(kind)), "{round:?}");
        }
        assert_eq!(faults, two_rounds(7));
        assert_ne!(faults, two_rounds(8));
    }

    #[test]
    fn without_faults_there_is_nothing_to_do() {
        assert!(Schedule::new(Vec::new(), true).next(&mut Random::new(1)).is_none());
    }
}
