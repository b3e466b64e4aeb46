//! From the submit to the first model call: HTTP, insert, wake-up, claim, and whatever stands between, until the request
//! arrives at the model.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use hdrhistogram::Histogram;
use longhaul_shared::store::Store;
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    conditions::conditions,
    floor::Floor,
    model::Answers,
    stand::{Bare, Stand, StandOptions, request},
};
use crate::{context::Context, exit::Exit, output};

/// Seconds not measured.
const WARM_UP_SECONDS: u32 = 2;
/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;
/// Bare commits at the rate of the submits, for comparison.
const PACED_COMMITS: usize = 60;
/// The longest wait for a first call.
const GIVE_UP: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(super) struct LatencyArgs {
    /// Submits per second
    #[arg(long, default_value_t = 20)]
    rate: u32,
    /// How long, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Stop Redis first
    #[arg(long)]
    without_redis: bool,
}

pub(super) async fn run(args: LatencyArgs, context: &Context) -> anyhow::Result<Exit> {
    ensure!(args.rate > 0 && args.seconds > 0, "--rate and --seconds must be at least 1");
    let conditions = conditions();
    let bare = Bare::start().await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    let pause = Duration::from_secs(1) / args.rate;
    let paced_ms = Store::paced_commit(&bare.options, pause, PACED_COMMITS).await?.as_secs_f64() * 1_000.0;
    let options = StandOptions { concurrency: 1_000, answers: Answers::default(), stored: 0 };
    let stand = Arc::new(bare.stand(options).await?);
    if args.without_redis {
        stand.servers.redis.stop().await?;
    }

    let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let mut ticks = tokio::time::interval(pause);
    let (warm_up, total) = (args.rate * WARM_UP_SECONDS, args.rate * (args.seconds + WARM_UP_SECONDS));
    let mut submitting = JoinSet::new();
    // A slow answer must not hold up the next submit: the rate is part of what is measured.
    for number in 0..total {
        ticks.tick().await;
        let stand = stand.clone();
        submitting.spawn(async move { anyhow::Ok((number, until_asked(&stand, number).await?)) });
    }
    while let Some(submitted) = submitting.join_next().await {
        let (number, took) = submitted??;
        if number >= warm_up {
            histogram.record(u64::try_from(took.as_micros())?.max(1))?;
        }
    }
    if let Some(stand) = Arc::into_inner(stand) {
        stand.stop().await?;
    }

    let millis = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
    let (p50, p99, max) = (millis(0.5), millis(0.99), histogram.max() as f64 / 1_000.0);
    if context.json {
        output::json(&json!({
            "conditions": conditions, "floor": floor.json(), "rate": args.rate, "without_redis": args.without_redis,
            "executions": histogram.len(), "p50_ms": p50, "p99_ms": p99, "max_ms": max,
            "median_commit_at_rate_ms": paced_ms, "p50_in_commits_at_rate": p50 / paced_ms,
            "p50_in_median_commits": p50 / floor.commit_ms, "p99_in_median_commits": p99 / floor.commit_ms,
        }));
        return Ok(Exit::Done);
    }
    let redis = if args.without_redis { ", Redis stopped" } else { "" };
    output::line(format!("submit to first model call at {}/s over {} executions{redis}", args.rate, histogram.len()));
    output::line(format!(
        "p50 {p50:.2} ms, p99 {p99:.2} ms, longest {max:.2} ms; at the median a bare commit here takes {:.2} ms when they follow \
         each other, and {paced_ms:.2} ms at this rate",
        floor.commit_ms
    ));
    Ok(Exit::Done)
}

/// How long it took from the submit of `number` until the model was asked; usually before the submit's own answer.
async fn until_asked(stand: &Stand, number: u32) -> anyhow::Result<Duration> {
    let started = Instant::now();
    stand.post("/v1/executions", &request(usize::try_from(number)?)).await?;
    loop {
        if let Some(at) = stand.model.first_asked(number.into()) {
            return Ok(at.saturating_duration_since(started));
        }
        ensure!(started.elapsed() < GIVE_UP, "execution {number} was not started within {} s", GIVE_UP.as_secs());
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}
