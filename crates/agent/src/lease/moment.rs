//! Clock of leases. It continues while the machine is suspended, as the server's clock does (`CLOCK_BOOTTIME` on
//! Linux). With a clock that stops, a resumed machine would take an old lease for a valid one and launch calls that
//! others launch too.

use std::{ops::Add, time::Duration};

/// A point in time since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The current moment.
    #[must_use]
    pub fn now() -> Self {
        Self(since_boot())
    }

    /// A moment that long ago.
    #[must_use]
    pub fn ago(past: Duration) -> Self {
        Self(since_boot().saturating_sub(past))
    }

    /// Time since this moment.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        since_boot().saturating_sub(self.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or_default(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    static STARTED: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    STARTED.elapsed()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The kernel's uptime includes suspensions.
    #[test]
    fn moments_count_from_boot_with_suspends() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split(' ').next().unwrap().parse().unwrap())
        };
        let (before, now, after) = (uptime(), Moment::now().0, uptime());
        let hundredth = Duration::from_millis(10);
        assert!(before <= now + hundredth && now <= after + hundredth, "{before:?} {now:?} {after:?}");
    }
}
