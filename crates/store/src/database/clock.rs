//! The database's clock, as this process knows it, and the ids made from it: UUIDv7.
//!
//! The clock is measured again with every batch of submits, so that a process with a wrong clock cannot make ids
//! outside the partitions (core-rules 15).

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use uuid::{Builder, Uuid};

use longhaul_domain::ExecutionId;

/// Offset between this process's clock and the database's, and the last id made.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock {
    measured: AtomicBool,
    ahead_micros: AtomicI64,
    last: Mutex<(u64, u16)>,
}

impl DatabaseClock {
    /// Takes over the database's time as just answered.
    pub(crate) fn observe(&self, database_now: DateTime<Utc>) {
        self.ahead_micros.store(database_now.timestamp_micros() - local_micros(), Ordering::Relaxed);
        self.measured.store(true, Ordering::Relaxed);
    }

    /// Returns true once the database's time was observed.
    pub(crate) fn is_measured(&self) -> bool {
        self.measured.load(Ordering::Relaxed)
    }

    /// The database's time, estimated from the last measurement.
    #[must_use]
    pub(crate) fn now(&self) -> DateTime<Utc> {
        let micros = local_micros() + self.ahead_micros.load(Ordering::Relaxed);
        DateTime::from_timestamp_micros(micros).unwrap_or_default()
    }

    /// A new id, greater than every earlier one of this process unless the clock goes back.
    pub(crate) fn mint(&self) -> ExecutionId {
        let millis = u64::try_from(self.now().timestamp_millis()).unwrap_or_default();
        let mut last = self.last.lock();
        // Twelve bits count within the millisecond, so that a batch keeps its order.
        *last = match *last {
            (at, count) if at == millis && count < 0xfff => (at, count + 1),
            (at, 0xfff) if at == millis => (at + 1, 0),
            (at, count) if at == millis + 1 => (at, count + 1),
            _ => (millis, 0),
        };
        let mut random = *Uuid::new_v4().as_bytes().last_chunk::<10>().unwrap_or(&[0; 10]);
        [random[0], random[1]] = (last.1 & 0xfff).to_be_bytes();
        ExecutionId(Builder::from_unix_timestamp_millis(last.0, &random).into_uuid())
    }
}

#[expect(clippy::disallowed_methods, reason = "only the distance to the database's clock is kept")]
fn local_micros() -> i64 {
    Utc::now().timestamp_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_and_carry_database_time() {
        let clock = DatabaseClock::default();
        let database_now = DateTime::from_timestamp_millis(2_000_000_000_000).unwrap();
        clock.observe(database_now);
        let ids: Vec<_> = (0..10_000).map(|_| clock.mint()).collect();
        assert!(ids.is_sorted());
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
        let (seconds, _) = ids[0].0.get_timestamp().unwrap().to_unix();
        assert!(seconds.abs_diff(2_000_000_000) <= 1);
        assert_eq!(ids[0].0.get_version_num(), 7);
    }
}
