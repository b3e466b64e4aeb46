//! Time, read in one place so that tests can own it.
//!
//! Business time in SQL comes from the database's own function, not from here. This is for what never reaches SQL:
//! measuring how long something took, and wall time in what people read.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

/// Reads time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Wall time; may jump when somebody sets the machine's clock.
    fn now(&self) -> DateTime<Utc>;

    /// Time since some fixed moment of this process; never goes back.
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

/// A clock that only moves when it is told to. Clones show the same time.
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

    /// Moves both clocks forward. A step beyond the end of the calendar leaves wall time where it is.
    pub fn advance(&self, by: Duration) {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        time.monotonic = time.monotonic.saturating_add(by);
        let moved = chrono::Duration::from_std(by).ok().and_then(|by| time.now.checked_add_signed(by));
        time.now = moved.unwrap_or(time.now);
    }

    fn time(&self) -> Time {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_manual_clock_moves_only_when_told_and_its_clones_with_it() {
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
