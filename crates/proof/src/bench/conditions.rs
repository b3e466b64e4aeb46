//! The conditions of a measurement.

use std::fs;

use longhaul_store::{Store, StoreOptions};
use serde_json::{Value, json};

/// The machine, the build, and the durability settings of the Postgres server.
pub(super) async fn conditions(options: &StoreOptions) -> anyhow::Result<Value> {
    let store = Store::open(options.clone())?;
    let durability = store.durability().await?;
    store.close().await;
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Ok(json!({
        "longhaul": env!("CARGO_PKG_VERSION"),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get),
        "cpu": model.map(|(_, name)| name.trim()),
        "load_average_before": load.split_whitespace().next(),
        "shares_the_cores": "API, worker, PostgreSQL, Redis, model server and load",
        "durable": {
            "fsync": durability.fsync, "synchronous_commit": durability.synchronous_commit,
            "full_page_writes": durability.full_page_writes,
        },
    }))
}
