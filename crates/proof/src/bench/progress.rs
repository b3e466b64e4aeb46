//! The progress of a load: its duration, and its rate in the settled middle part.

use std::time::Duration;

/// Observations of a load over time.
#[derive(Debug)]
pub(super) struct LoadProgress {
    pub(super) executions: usize,
    /// Time until the last execution ended.
    pub(super) took: Duration,
    /// Number of ended executions at each time, in order of time.
    pub(super) looks: Vec<(Duration, usize)>,
}

impl LoadProgress {
    /// The rate over the whole time, start and end included.
    pub(super) fn per_second(&self) -> f64 {
        self.executions as f64 / self.took.as_secs_f64()
    }

    /// The slope of a least-squares line through the middle part: after the first third, in which executions
    /// submitted at once spread out, and before the last tenth, in which fewer and fewer run. `None` with fewer than
    /// two observations there.
    pub(super) fn settled_per_second(&self) -> Option<f64> {
        let (from, to) = (self.executions / 3, self.executions * 9 / 10);
        let middle = self.looks.iter().filter(|(_, over)| (from..to).contains(over));
        let points: Vec<(f64, f64)> = middle.map(|(at, over)| (at.as_secs_f64(), *over as f64)).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
        let (mean_at, mean_over) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|(at, _)| (at - mean_at).powi(2)).sum();
        let slope: f64 = points.iter().map(|(at, over)| (at - mean_at) * (over - mean_over)).sum();
        (spread > 0.0).then(|| slope / spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes `over` ten times per second until `executions` have ended.
    fn progress(executions: usize, over: impl Fn(f64) -> usize) -> LoadProgress {
        let looks: Vec<_> = (0..)
            .map(|tenth| (Duration::from_millis(100 * tenth), over(tenth as f64 / 10.0)))
            .take_while(|(_, over)| *over < executions)
            .collect();
        LoadProgress { executions, took: looks.last().unwrap().0, looks }
    }

    #[test]
    fn settled_rate_excludes_start_and_end() {
        // No ends in the first five seconds, then 100 per second, then a slow last tenth.
        let slow_ends = progress(1_000, |at| {
            if at < 14.5 { (100.0 * (at - 5.0)).max(0.0) as usize } else { 949 + (at - 14.5) as usize }
        });
        assert!(slow_ends.per_second() < 20.0);
        assert!((slow_ends.settled_per_second().unwrap() - 100.0).abs() < 1.0);
    }

    #[test]
    fn waves_have_their_arrival_rate() {
        let waves = progress(3_000, |at| 100 * at as usize);
        assert!((waves.settled_per_second().unwrap() - 100.0).abs() < 3.0, "{:?}", waves.settled_per_second());
    }

    #[test]
    fn without_a_middle_there_is_no_settled_rate() {
        let short =
            LoadProgress { executions: 3, took: Duration::from_secs(1), looks: vec![(Duration::from_millis(500), 1)] };
        assert_eq!(short.settled_per_second(), None);
        assert_eq!(LoadProgress { looks: Vec::new(), ..short }.settled_per_second(), None);
    }
}
