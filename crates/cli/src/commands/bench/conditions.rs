//! What a number was measured under.

use std::fs;

use serde_json::{Value, json};

/// The machine and the build.
pub(super) fn conditions() -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    json!({
        "longhaul": env!("CARGO_PKG_VERSION"),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get),
        "cpu": model.map(|(_, name)| name.trim()),
        "load_average_before": load.split_whitespace().next(),
        "shares_the_cores": "API, worker, PostgreSQL, Redis, model server and load",
        "durable": "fsync, full_page_writes and synchronous_commit on",
    })
}
