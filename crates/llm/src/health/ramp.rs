//! The start of calls to an endpoint of which no limit is known: few at first, and twice as many after each
//! `DOUBLES`, so that a limit is met by few calls. After some seconds nothing is held back.

use std::time::{Duration, Instant};

/// Calls at once, and a second, in the beginning.
const FIRST: f64 = 4.0;
const FIRST_PER_SECOND: f64 = 32.0;
/// Time after which the rate doubles.
const DOUBLES: Duration = Duration::from_millis(250);
/// Rate from which nothing is held back.
const FREE: f64 = 8_192.0;

/// State of one endpoint in one process.
#[derive(Debug)]
pub(super) struct Ramp {
    per_second: f64,
    doubled: Instant,
    /// Calls that may begin now.
    level: f64,
    filled: Instant,
    /// Calls that began in this second and in the one before.
    second: Instant,
    begun: u32,
    before: u32,
}

impl Ramp {
    pub(super) fn new(now: Instant) -> Self {
        Self { per_second: FIRST_PER_SECOND, doubled: now, level: FIRST, filled: now, second: now, begun: 0, before: 0 }
    }

    /// Counts a call that begins. Returns the time until one may, if none may now.
    pub(super) fn pass(&mut self, now: Instant) -> Option<Duration> {
        self.turn(now);
        if self.per_second < FREE {
            let idle = now - self.filled;
            self.level = (self.level + idle.as_secs_f64() * self.per_second).min((self.per_second / 8.0).max(FIRST));
            self.filled = now;
            // Time without a call proves nothing.
            if idle > DOUBLES {
                self.doubled = now;
            } else if now - self.doubled >= DOUBLES {
                (self.per_second, self.doubled) = (self.per_second * 2.0, now);
            }
            if self.level < 1.0 {
                return Some(Duration::from_secs_f64((1.0 - self.level) / self.per_second));
            }
            self.level -= 1.0;
        }
        self.begun += 1;
        None
    }

    /// Calls that began in the last second.
    pub(super) fn begun(&mut self, now: Instant) -> u32 {
        self.turn(now);
        let part = 1.0 - (now - self.second).as_secs_f64().min(1.0);
        self.begun + (f64::from(self.before) * part) as u32
    }

    fn turn(&mut self, now: Instant) {
        let passed = now - self.second;
        if passed >= Duration::from_secs(1) {
            self.before = if passed < Duration::from_secs(2) { self.begun } else { 0 };
            (self.begun, self.second) = (0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_begin_slowly_and_soon_without_limit() {
        let start = Instant::now();
        let mut ramp = Ramp::new(start);
        let mut begun = Vec::new();
        let mut at = Duration::ZERO;
        while begun.len() < 5_000 {
            match ramp.pass(start + at) {
                None => begun.push(at),
                Some(wait) => at += wait.max(Duration::from_micros(100)),
            }
        }
        let within = |millis| begun.iter().filter(|at| **at <= Duration::from_millis(millis)).count();
        assert_eq!(within(0), 4);
        assert!((8..=14).contains(&within(240)), "{}", within(240));
        assert!((30..=60).contains(&within(600)), "{}", within(600));
        assert!(*begun.last().unwrap() < Duration::from_millis(2_500), "{:?}", begun.last());
        assert!(ramp.begun(start + at) >= 1_000);
        assert_eq!(ramp.begun(start + at + Duration::from_secs(5)), 0);
    }

    #[test]
    fn rare_calls_wait_for_nothing() {
        let start = Instant::now();
        let mut ramp = Ramp::new(start);
        assert!((0..100).all(|n| ramp.pass(start + Duration::from_millis(50 * n)).is_none()));
    }
}
