//! Many executions that wait for a slow model at once: what one worker process needs for them, and how near it comes to the
//! rate that the model alone would allow.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use serde_json::json;

use super::{
    conditions::conditions,
    load::Load,
    model::Answers,
    stand::{Bare, StandOptions},
};
use crate::{context::Context, exit::Exit, output};

/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(super) struct InFlightArgs {
    /// Executions in flight at once
    #[arg(long, default_value_t = 1_000)]
    executions: usize,
    /// The model's delay, in milliseconds
    #[arg(long, default_value_t = 10_000)]
    delay_ms: u64,
    /// How many times as many are run
    #[arg(long, default_value_t = 3)]
    waves: usize,
    #[command(flatten)]
    load: Load,
}

pub(super) async fn run(args: InFlightArgs, context: &Context) -> anyhow::Result<Exit> {
    ensure!(args.executions > 0 && args.waves > 0, "--executions and --waves must be at least 1");
    let conditions = conditions();
    let delay = Duration::from_millis(args.delay_ms);
    let options = StandOptions { concurrency: args.executions, answers: Answers { delay, rounds: 0 }, stored: 0 };
    let stand = Arc::new(Bare::start().await?.stand(options).await?);
    let idle = stand.worker_bytes();
    let total = args.executions * args.waves;
    let started = Instant::now();
    let running = {
        let (stand, load) = (stand.clone(), args.load);
        tokio::spawn(async move { load.drive(&stand, total).await })
    };
    let mut most = 0;
    while !running.is_finished() {
        most = most.max(stand.worker_bytes());
        tokio::time::sleep(LOOK_EVERY).await;
    }
    running.await??;
    let took = started.elapsed();
    if let Some(stand) = Arc::into_inner(stand) {
        stand.stop().await?;
    }

    let (rate, ideal) = (total as f64 / took.as_secs_f64(), args.executions as f64 / delay.as_secs_f64());
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    if context.json {
        output::json(&json!({
            "conditions": conditions, "in_flight": args.executions, "delay_ms": args.delay_ms, "executions": total,
            "worker_megabytes_idle": megabytes(idle), "worker_megabytes_at_most": megabytes(most),
            "executions_per_second": rate, "ideal_per_second": ideal, "ratio_to_ideal": rate / ideal,
        }));
        return Ok(Exit::Done);
    }
    output::line(format!("{} in flight against a model of {} ms, {total} executions", args.executions, args.delay_ms));
    output::line(format!("worker: {:.0} MB at most, {:.0} MB idle", megabytes(most), megabytes(idle)));
    output::line(format!("{rate:.1}/s, {:.1} % of the ideal {ideal:.1}/s", 100.0 * rate / ideal));
    Ok(Exit::Done)
}
