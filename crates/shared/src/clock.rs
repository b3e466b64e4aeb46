//! Clocks of the process, replaceable in tests.
//!
//! SQL reads business time from the database's own function. These clocks are for durations and for wall time shown
//! to people.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

pub trait Clock: fmt::Debug + Send + Sync {
    /// Wall time. Jumps when the machine's clock is set.
    fn now(&self) -> DateTime<Utc>;

    /// Time since a fixed moment of this process. Never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that moves only through [`Self::advance`]. Clones share the same time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    time: Arc<Mutex<Time>>,
}

#[derive(Debug, Clone, Copy)]
struct Time {
    now: DateTime<Utc>,
    monotonic: Duration,
}

impl ManualClock {
    pub fn new(now: DateTime<Utc>) -> Self {
        Self { time: Arc::new(Mutex::new(Time { now, monotonic: Duration::ZERO })) }
    }

    /// Moves both clocks forward. Wall time stays where it is if the step leaves the range of the calendar.
    pub fn advance(&self, by: Duration) {
        let mut time = self.time.lock();
        time.monotonic = time.monotonic.saturating_add(by);
        let moved = chrono::Duration::from_std(by).ok().and_then(|by| time.now.checked_add_signed(by));
        time.now = moved.unwrap_or(time.now);
    }

    fn time(&self) -> Time {
        *self.time.lock()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        self.time().now
    }

    fn monotonic(&self) -> Duration {
        self.time().monotonic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_and_clones_move_only_on_advance() {
        let clock = ManualClock::new(DateTime::UNIX_EPOCH);
        let seen: Arc<dyn Clock> = Arc::new(clock.clone());
        assert_eq!((seen.now(), seen.monotonic()), (DateTime::UNIX_EPOCH, Duration::ZERO));
        clock.advance(Duration::from_secs(90));
        assert_eq!(seen.now().timestamp(), 90);
        assert_eq!(seen.monotonic(), Duration::from_secs(90));
        clock.advance(Duration::MAX);
        assert_eq!(seen.now().timestamp(), 90);
    }
}
