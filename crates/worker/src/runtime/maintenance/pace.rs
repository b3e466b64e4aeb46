//! Periods and portions of the maintenance.

use std::time::Duration;

use longhaul_store::StoreError;
use longhaul_telemetry::metrics;
use tokio::time::{MissedTickBehavior, interval};

/// Executions moved by one statement.
pub(super) const CHUNK: i64 = 500;
/// Chunks moved in one tick; the rest waits for the next, so that no duty starves the others.
pub(super) const CHUNKS: usize = 20;
/// Time past `active_until` after which the sweep ends the execution.
pub(super) const OVERDUE_GRACE: Duration = Duration::from_secs(15);
/// Time of steady renewals required before held, overdue executions are ended: after an outage, attempts write
/// their results first.
pub(super) const STEADY: Duration = Duration::from_secs(10);

/// Time after which a duty of this period is due, if workers check every `tick`: half a tick less, so that the
/// check one period later finds it due.
pub(super) fn between(period: Duration, tick: Duration) -> Duration {
    period.saturating_sub(tick / 2)
}

pub(super) fn failed(duty: &'static str, error: &StoreError) {
    metrics::sweep_failed(duty);
    tracing::warn!(duty, error = %error, "a duty of the sweep failed");
}

pub(super) fn ticks(every: Duration) -> tokio::time::Interval {
    let mut tick = interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}
