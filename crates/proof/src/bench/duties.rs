//! Buffers that each duty of the sweep, and each other search for due rows, reads beside rows that are not due
//! (core-rules 28).

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use futures::future::BoxFuture;
use longhaul_command::{Context, Exit, output};
use longhaul_config::Config;
use longhaul_domain::TenantId;
use longhaul_store::{
    Store, StoreError, StoreOptions,
    webhooks::{EndpointKind, HeldLanes, Lane},
};
use longhaul_worker::WorkerBuilder;
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{bare_commits::Floor, conditions::conditions, environment::Bare, sweep};

/// Executions of the floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;
/// Runs of each duty: the later ones use the plan that PostgreSQL keeps.
const RUNS: i64 = 8;
/// Most buffers of one run.
const MOST: i64 = 300;
/// Time limit for the end of a session, with which its statistics are counted.
const ENDS: Duration = Duration::from_secs(30);
const CONNECTIONS: u32 = 4;

#[derive(Debug, clap::Args)]
pub(super) struct DutiesArgs {
    /// Rows of each kind that are not due
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rows: u32,
}

type Search = for<'a> fn(&'a Store) -> BoxFuture<'a, Result<(), StoreError>>;

/// Searches for due rows that are no duty of the sweep.
const SEARCHES: [(&str, Search); 6] = [
    ("reap dead workers", |store| {
        Box::pin(async {
            store.bury_expired_workers(Duration::from_secs(6)).await?;
            store.reap(500).await?;
            store.mark_emptied().await
        })
    }),
    ("read the state of model endpoints", |store| Box::pin(async { store.known_providers().await.map(drop) })),
    ("claim lanes of webhooks", |store| {
        Box::pin(async { store.claim_lanes(8, &HeldLanes::default(), Duration::from_secs(1)).await.map(drop) })
    }),
    ("take due deliveries of a lane", |store| {
        Box::pin(async {
            let lane = lane(store.any_endpoint().await?);
            store.due_deliveries(&lane, &[], 8).await.map(drop)
        })
    }),
    ("tidy deliveries", |store| Box::pin(async { store.tidy_deliveries(1_000).await.map(drop) })),
    ("prune the audit log", |store| {
        Box::pin(async { store.prune_audit(Duration::from_secs(864_000), false).await.map(drop) })
    }),
];

fn lane(endpoint: Uuid) -> Lane {
    Lane {
        endpoint,
        tenant: TenantId(Uuid::nil()),
        kind: EndpointKind::Standard,
        url: String::new(),
        secret_number: 1,
        signs_twice: false,
        is_doubtful: false,
        token: Uuid::nil(),
    }
}

pub(super) async fn run(args: DutiesArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    drop(bare);
    let bare = Bare::start().await?;
    let config = sweep::config(&bare, CONNECTIONS)?;
    let store =
        Store::open(StoreOptions { max_connections: 1, ..StoreOptions::of_config(&config, "longhaul-bench")? })?;
    store.migrate().await?;
    let started = Instant::now();
    store.fill_with_not_due(args.rows.into()).await?;
    let filled = started.elapsed().as_secs();
    let read = measure(&store, &config).await?;
    if context.json {
        output::json(&json!({
            "conditions": conditions, "floor": floor.json(), "rows": args.rows, "fill_seconds": filled, "most": MOST,
            "buffers": read,
        }));
        return Ok(Exit::Done);
    }
    output::line(format!("{} rows of each kind, none due; filled in {filled} s; buffers of one run:", args.rows));
    for (name, buffers) in &read {
        let mark = if *buffers > MOST { "  too many" } else { "" };
        output::line(format!("{name:<36}{buffers:>9}{mark}"));
    }
    ensure!(read.values().all(|buffers| *buffers <= MOST), "a duty reads more than {MOST} buffers");
    Ok(Exit::Done)
}

/// Buffers of one run of each duty and search, by name.
async fn measure(store: &Store, config: &Config) -> anyhow::Result<BTreeMap<&'static str, i64>> {
    let mut read = BTreeMap::new();
    let duties = WorkerBuilder::new(config.clone()).build()?.duties();
    for name in duties.names() {
        // Sessions of its own, whose statistics are counted when they end.
        let duties = WorkerBuilder::new(config.clone()).build()?.duties();
        let before = store.buffers().await?;
        for _ in 0..RUNS {
            duties.run(name).await?;
        }
        duties.close().await;
        others_end(store).await?;
        read.insert(name, (store.buffers().await? - before) / RUNS);
    }
    for (name, search) in SEARCHES {
        let searching = Store::open(StoreOptions::of_config(config, "longhaul-bench")?)?;
        let before = store.buffers().await?;
        for _ in 0..RUNS {
            search(&searching).await?;
        }
        searching.close().await;
        others_end(store).await?;
        read.insert(name, (store.buffers().await? - before) / RUNS);
    }
    Ok(read)
}

async fn others_end(store: &Store) -> anyhow::Result<()> {
    let started = Instant::now();
    while store.other_sessions().await? > 0 {
        ensure!(started.elapsed() < ENDS, "a session does not end");
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
