//! From the submit to the first model call: HTTP, insert, wake-up, claim, and whatever stands between.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::FutureExt;
use hdrhistogram::Histogram;
use longhaul_shared::{domain::ExecutionId, store::Store};
use longhaul_worker::probe::{Point, Probe};
use serde_json::json;

use super::stand::{Bare, request};
use crate::{context::Context, exit::Exit, output};

/// Executions not measured.
const WARM_UP: usize = 40;
/// Commits of the yardstick.
const FLOOR_EXECUTIONS: u32 = 300;

#[derive(Debug, clap::Args)]
pub(super) struct LatencyArgs {
    /// Submits per second
    #[arg(long, default_value_t = 20)]
    rate: u32,
    /// How long, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

type Asked = Arc<Mutex<HashMap<ExecutionId, Instant>>>;

pub(super) async fn run(args: LatencyArgs, context: &Context) -> anyhow::Result<Exit> {
    ensure!(args.rate > 0 && args.seconds > 0, "--rate and --seconds must be at least 1");
    let bare = Bare::start().await?;
    let (_, commit) = Store::bare_commits(&bare.options, 1, FLOOR_EXECUTIONS).await?;
    let asked = Asked::default();
    let seen = asked.clone();
    let probe = Probe::armed(move |point, id| {
        if point == Point::BeforeTurn {
            seen.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert_with(Instant::now);
        }
        async {}.boxed()
    });
    let stand = bare.stand(1_000, probe).await?;

    let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / args.rate);
    let total = WARM_UP + usize::try_from(args.rate * args.seconds)?;
    for number in 0..total {
        ticks.tick().await;
        let started = Instant::now();
        let answer = stand.post("/v1/executions", &request(number)).await?;
        let id: ExecutionId = answer["id"].as_str().context("the answer has no id")?.parse()?;
        let first_call = first_call(&asked, id).await?;
        if number >= WARM_UP {
            histogram.record(u64::try_from((first_call - started).as_micros())?.max(1))?;
        }
    }
    stand.stop().await?;

    let millis = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
    let (p50, p99) = (millis(0.5), millis(0.99));
    let commit = commit.as_secs_f64() * 1_000.0;
    if context.json {
        output::json(&json!({
            "rate": args.rate, "executions": histogram.len(), "p50_ms": p50, "p99_ms": p99, "median_commit_ms": commit,
        }));
        return Ok(Exit::Done);
    }
    output::line(format!("submit to first model call at {}/s over {} executions", args.rate, histogram.len()));
    output::line(format!("p50 {p50:.2} ms, p99 {p99:.2} ms; a single commit here takes {commit:.2} ms at the median"));
    Ok(Exit::Done)
}

/// When the model was first about to be asked; usually before the submit's own answer arrived.
async fn first_call(asked: &Asked, id: ExecutionId) -> anyhow::Result<Instant> {
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(at) = asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
            return Ok(at);
        }
        ensure!(Instant::now() < give_up, "execution {id} was not started within 30 s");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}
