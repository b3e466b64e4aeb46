//! Costs of a turn: medians over a window of turns.

use std::time::Instant;

use anyhow::Context as _;
use longhaul_store::proof::bare_commits::LogPosition;
use serde::Serialize;

/// The first turn of the early window: those before it load what the worker then keeps.
const EARLY_FROM: usize = 5;
/// Turns of a window.
const TURNS: usize = 20;

/// State of the benchmark at the request of a turn.
pub(super) struct TurnObservation {
    pub(super) asked_at: Instant,
    pub(super) request_bytes: usize,
    /// Known at the turns of a window.
    pub(super) position: Option<LogPosition>,
    pub(super) answered_at: Instant,
}

/// Consecutive turns, counted from 1.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Window {
    from: usize,
    to: usize,
}

/// Cost of a turn: medians over a window, unless said otherwise.
#[derive(Debug, Serialize)]
pub(super) struct Costs {
    window: Window,
    /// The request that follows the window.
    request_bytes: usize,
    wal_bytes: f64,
    /// With heartbeats and page images, unlike the median.
    mean_wal_bytes: f64,
    /// Transactions that wrote. Each statement of a worker is one.
    commits: f64,
    /// Bytes of the rows of steps and events, compressed.
    stored_bytes: f64,
    /// From the answer of the model to its next request.
    milliseconds: f64,
}

/// Ratios of the costs of a late turn to those of an early one.
#[derive(Debug, Serialize)]
pub(super) struct Ratios {
    pub(super) wal_bytes: f64,
    pub(super) commits: f64,
    pub(super) stored_bytes: f64,
    pub(super) milliseconds: f64,
}

impl Window {
    /// The windows of an execution of `turns` turns, without the last, which ends it.
    pub(super) fn early_and_late(turns: usize) -> [Self; 2] {
        let length = TURNS.min(turns.saturating_sub(EARLY_FROM) / 2);
        [Self { from: EARLY_FROM, to: EARLY_FROM + length - 1 }, Self { from: turns - length, to: turns - 1 }]
    }

    /// True if the request of `turn` begins or ends a turn of the window.
    pub(super) fn begins_or_ends_at(self, turn: usize) -> bool {
        (self.from..=self.to + 1).contains(&turn)
    }
}

impl Costs {
    /// `looks` are those of all turns, `stored_bytes` begins before the first turn.
    pub(super) fn of(window: Window, looks: &[TurnObservation], stored_bytes: &[i64]) -> anyhow::Result<Self> {
        let looks = looks.get(window.from - 1..=window.to).context("turns are missing")?;
        let stored_bytes = stored_bytes.get(window.from..=window.to).context("turns are not stored")?;
        let (mut wal_bytes, mut commits, mut milliseconds) = (Vec::new(), Vec::new(), Vec::new());
        for pair in looks.windows(2) {
            let [this, next] = pair else { continue };
            let (before, after) = this.position.zip(next.position).context("the log was not looked at")?;
            wal_bytes.push((after.wal_bytes - before.wal_bytes) as f64);
            commits.push((after.transaction_ids - before.transaction_ids) as f64);
            milliseconds.push(next.asked_at.duration_since(this.answered_at).as_secs_f64() * 1_000.0);
        }
        Ok(Self {
            window,
            request_bytes: looks.last().map_or(0, |look| look.request_bytes),
            mean_wal_bytes: wal_bytes.iter().sum::<f64>() / wal_bytes.len().max(1) as f64,
            wal_bytes: median(wal_bytes),
            commits: median(commits),
            stored_bytes: median(stored_bytes.iter().map(|bytes| *bytes as f64).collect()),
            milliseconds: median(milliseconds),
        })
    }

    pub(super) fn ratios_to(&self, early: &Self) -> Ratios {
        Ratios {
            wal_bytes: self.wal_bytes / early.wal_bytes,
            commits: self.commits / early.commits,
            stored_bytes: self.stored_bytes / early.stored_bytes,
            milliseconds: self.milliseconds / early.milliseconds,
        }
    }

    pub(super) fn line(&self) -> String {
        format!(
            "turns {:>5} to {:>5}, then a request of {:>7} bytes: {:>6.0} bytes of log, {:.0} commits, \
             {:>6.0} bytes stored, {:.1} ms",
            self.window.from,
            self.window.to,
            self.request_bytes,
            self.wal_bytes,
            self.commits,
            self.stored_bytes,
            self.milliseconds
        )
    }
}

/// The lower median; 0 of nothing.
pub(super) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn windows_of_few_turns_do_not_overlap() {
        let [early, late] = Window::early_and_late(1_000);
        assert_eq!((early.from, early.to, late.from, late.to), (5, 24, 980, 999));
        let [early, late] = Window::early_and_late(30);
        assert_eq!((early.from, early.to, late.from, late.to), (5, 16, 18, 29));
    }

    #[test]
    fn one_noisy_turn_leaves_the_median() {
        let (began, mut position) = (Instant::now(), LogPosition { wal_bytes: 0, transaction_ids: 0 });
        let looks = (0..30).map(|turn| {
            let at = began + Duration::from_millis(10 * turn);
            position.wal_bytes += if turn == 9 { 100_000 } else { 500 };
            position.transaction_ids += 2;
            TurnObservation {
                asked_at: at,
                request_bytes: 0,
                position: Some(position),
                answered_at: at + Duration::from_millis(4),
            }
        });
        let looks: Vec<TurnObservation> = looks.collect();
        let early = Costs::of(Window::early_and_late(30)[0], &looks, &[7; 31]).unwrap();
        assert_eq!((early.wal_bytes, early.commits, early.stored_bytes), (500.0, 2.0, 7.0));
        assert!((early.milliseconds - 6.0).abs() < 1e-6, "{}", early.milliseconds);
    }
}
