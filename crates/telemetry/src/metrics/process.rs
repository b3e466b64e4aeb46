//! Metrics of the process itself, by the names that client libraries of Prometheus give them.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use metrics::{counter, gauge};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_shared::memory::resident;

/// Start of the process: telemetry starts first.
static STARTED: LazyLock<Duration> =
    LazyLock::new(|| SystemTime::from(SystemClock::default().now()).duration_since(UNIX_EPOCH).unwrap_or_default());

/// Remembers the start of the process.
pub(super) fn started() {
    LazyLock::force(&STARTED);
}

/// Reads the metrics of the process. What the system does not tell is left out.
pub(super) fn observe() {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let nanoseconds = used.tv_sec.saturating_mul(1_000_000_000).saturating_add(used.tv_nsec);
    counter!("process_cpu_seconds_total").absolute(u64::try_from(nanoseconds).unwrap_or_default());
    if let Some(bytes) = resident() {
        gauge!("process_resident_memory_bytes").set(bytes as f64);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // Without the one that reads the directory.
        gauge!("process_open_fds").set(open.count().saturating_sub(1) as f64);
    }
    if let Some(max) = getrlimit(Resource::Nofile).current {
        gauge!("process_max_fds").set(max as f64);
    }
    gauge!("process_start_time_seconds").set(STARTED.as_secs_f64());
}
