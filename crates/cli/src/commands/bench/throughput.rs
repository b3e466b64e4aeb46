//! Executions per second through everything: HTTP submit, claim, turn, conclusion.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use longhaul_shared::store::Store;
use longhaul_worker::probe::Probe;
use serde_json::json;

use super::stand::{Bare, Stand, request};
use crate::{context::Context, exit::Exit, output};

/// Clients of the floor; the best counts.
const FLOOR_CLIENTS: [u32; 3] = [1, 8, 32];
/// Executions not measured: connections, caches and plans warm up.
const WARM_UP: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct ThroughputArgs {
    /// Executions measured
    #[arg(long, default_value_t = 30_000)]
    executions: usize,
    /// Executions of one HTTP request
    #[arg(long, default_value_t = 200)]
    batch: usize,
    /// HTTP requests under way at once
    #[arg(long, default_value_t = 4)]
    submitters: usize,
    /// Executions the worker holds at most
    #[arg(long, default_value_t = 1_000)]
    concurrency: usize,
    /// Executions of each floor measurement
    #[arg(long, default_value_t = 6_000)]
    floor_executions: u32,
}

pub(super) async fn run(args: ThroughputArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let mut floors = Vec::new();
    for clients in FLOOR_CLIENTS {
        let (took, _) = Store::bare_commits(&bare.options, clients, args.floor_executions).await?;
        floors.push((clients, f64::from(args.floor_executions) / took.as_secs_f64()));
    }
    let floor = floors.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);

    let stand = Arc::new(bare.stand(args.concurrency, Probe::default()).await?);
    drive(&stand, WARM_UP, &args).await?;
    let before = stand.store.wal_bytes().await?;
    let took = drive(&stand, args.executions, &args).await?;
    let wal = (stand.store.wal_bytes().await? - before) / i64::try_from(args.executions)?;
    let rate = args.executions as f64 / took.as_secs_f64();
    if let Some(stand) = Arc::into_inner(stand) {
        stand.stop().await?;
    }

    if context.json {
        output::json(&json!({
            "executions": args.executions, "executions_per_second": rate, "floor_per_second": floor, "ratio": rate / floor,
            "wal_bytes_per_execution": wal,
            "floor_by_clients": floors.iter().map(|(clients, rate)| json!({ "clients": clients, "per_second": rate })).collect::<Vec<_>>(),
        }));
        return Ok(Exit::Done);
    }
    for (clients, rate) in floors {
        output::line(format!("floor, three single-row commits per execution, {clients:>2} clients: {rate:>7.0}/s"));
    }
    output::line(format!("executions, submit to FINISHED:                               {rate:>7.0}/s"));
    output::line(format!("ratio to the floor: {:.2}; WAL per execution: {wal} bytes", rate / floor));
    Ok(Exit::Done)
}

/// Submits `executions` and waits until all have FINISHED.
async fn drive(stand: &Arc<Stand>, executions: usize, args: &ThroughputArgs) -> anyhow::Result<Duration> {
    let (finished_before, _) = stand.ended().await?;
    let started = Instant::now();
    let requests: Vec<_> =
        (0..executions).step_by(args.batch).map(|from| (from, (from + args.batch).min(executions))).collect();
    let mut submitting = tokio::task::JoinSet::new();
    let queue = Arc::new(std::sync::Mutex::new(requests));
    for _ in 0..args.submitters {
        let (stand, queue) = (stand.clone(), queue.clone());
        submitting.spawn(async move {
            loop {
                let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
                let Some((from, to)) = next else { return anyhow::Ok(()) };
                let body = json!({ "executions": (from..to).map(request).collect::<Vec<_>>() });
                stand.post("/v1/executions/batch", &body).await?;
            }
        });
    }
    while let Some(submitted) = submitting.join_next().await {
        submitted??;
    }
    loop {
        let (finished, failed) = stand.ended().await?;
        ensure!(failed == 0, "{failed} executions FAILED");
        if finished - finished_before >= i64::try_from(executions)? {
            return Ok(started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
