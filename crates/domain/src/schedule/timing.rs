//! The ticks of a schedule.

use chrono::{DateTime, Duration, Utc};
use chrono_tz::Tz;

use super::cron::Cron;

/// When the ticks of a schedule come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timing {
    Cron {
        cron: Cron,
        zone: Tz,
    },
    /// Every so often, counted from `anchor`.
    Interval {
        every: Duration,
        anchor: DateTime<Utc>,
    },
    Once(DateTime<Utc>),
}

/// Ticks that have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Newest tick that has passed: the one to fire.
    pub tick: DateTime<Utc>,
    /// Oldest one; the same, unless ticks were missed.
    pub first: DateTime<Utc>,
}

impl Timing {
    /// The first tick after `after`; `None` if there is none.
    #[must_use]
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Cron { cron, zone } => cron.next_after(after, *zone),
            Self::Interval { every, anchor } => {
                let every = every.num_seconds().max(1);
                // From the anchor on: it is itself no tick.
                let passed = (after - anchor).num_seconds().max(0) / every;
                anchor.checked_add_signed(Duration::seconds((passed + 1).checked_mul(every)?))
            }
            Self::Once(at) => Some(*at).filter(|at| *at > after),
        }
    }

    /// The ticks from `first`, the next one as of the last look, to `now`; `None` if `first` is still to come.
    #[must_use]
    pub fn due(&self, first: DateTime<Utc>, now: DateTime<Utc>) -> Option<Due> {
        if first > now {
            return None;
        }
        // Ticks are at least a minute apart: halve the time in which the newest one is until it is less than that.
        let (mut tick, mut end) = (first, now);
        while end - tick >= Duration::minutes(1) {
            let middle = tick + (end - tick) / 2;
            match self.next_after(middle).filter(|next| *next <= now) {
                Some(next) => tick = next,
                None => match self.next_after(tick).filter(|next| *next <= middle) {
                    Some(next) => (tick, end) = (next, middle),
                    None => break,
                },
            }
        }
        Some(Due { tick, first })
    }

    /// The zone of its months; UTC, if it has no zone.
    #[must_use]
    pub fn zone(&self) -> Tz {
        match self {
            Self::Cron { zone, .. } => *zone,
            Self::Interval { .. } | Self::Once(_) => Tz::UTC,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn cron(line: &str, zone: Tz) -> Timing {
        Timing::Cron { cron: Cron::parse(line).unwrap(), zone }
    }

    #[test]
    fn intervals_count_from_their_anchor() {
        let every = Timing::Interval { every: Duration::seconds(90), anchor: at("2026-01-01T00:00:30Z") };
        assert_eq!(every.next_after(at("2020-01-01T00:00:00Z")), Some(at("2026-01-01T00:02:00Z")));
        assert_eq!(every.next_after(at("2026-01-01T00:02:00Z")), Some(at("2026-01-01T00:03:30Z")));
        assert_eq!(every.next_after(at("2026-01-01T00:03:29.9Z")), Some(at("2026-01-01T00:03:30Z")));
    }

    #[test]
    fn newest_missed_tick_is_due() {
        let daily = cron("30 6 * * MON-FRI", Tz::Europe__Berlin);
        let first = at("2026-01-05T05:30:00Z");
        assert_eq!(daily.due(first, at("2026-01-05T05:29:59Z")), None);
        let due = daily.due(first, at("2026-06-07T12:00:00Z")).unwrap();
        // The Friday before, in summer time.
        assert_eq!((due.tick, due.first), (at("2026-06-05T04:30:00Z"), first));
        let minutely = cron("* * * * *", Tz::UTC);
        let due = minutely.due(first, at("2026-01-05T07:00:10Z")).unwrap();
        assert_eq!(due.tick, at("2026-01-05T07:00:00Z"));
        let due = minutely.due(first, first).unwrap();
        assert_eq!(due.tick, first);
    }

    #[test]
    fn one_time_has_no_next_tick() {
        let once = Timing::Once(at("2026-01-01T00:00:00Z"));
        let due = once.due(at("2026-01-01T00:00:00Z"), at("2026-03-01T00:00:00Z")).unwrap();
        assert_eq!(due.tick, at("2026-01-01T00:00:00Z"));
    }
}
