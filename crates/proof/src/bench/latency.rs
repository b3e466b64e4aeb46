//! Start latency: HTTP, insert, wake-up, claim and everything else from the submit until the request arrives at the
//! model.

use std::{str::FromStr, sync::Arc, time::Duration};

use anyhow::ensure;
use longhaul_command::{Context, Exit, output};
use longhaul_store::Store;
use serde_json::json;

use super::{
    bare_commits::Floor,
    conditions::conditions,
    costs::Meter,
    environment::{Bare, BenchEnvironment, EnvironmentOptions},
    load::Load,
    starts::{Pace, Starts},
};

/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;
/// Number of bare commits at the rate of the submits, for comparison.
const PACED_COMMITS: usize = 60;
/// Load that finds the highest rate: 64 single submits in progress, which share group commits.
const HIGHEST: Load = Load { batch: 1, submitters: 64 };
/// Executions of that search; as many run before it without being counted.
const HIGHEST_EXECUTIONS: usize = 6_000;
/// Number of the first measured execution, above those of the search.
const FIRST: u32 = 1_000_000;

#[derive(Debug, clap::Args)]
pub(super) struct LatencyArgs {
    /// Submits per second, or `half` of the highest rate of single submits, which is measured first
    #[arg(long, default_value = "20")]
    rate: Rate,
    /// Duration of the measurement, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Stop Redis before the measurement
    #[arg(long)]
    without_redis: bool,
}

/// The rate of submits.
#[derive(Debug, Clone, Copy)]
enum Rate {
    PerSecond(u32),
    HalfOfTheHighest,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("half", _) => Ok(Self::HalfOfTheHighest),
            (_, Ok(rate @ 1..)) => Ok(Self::PerSecond(rate)),
            (_, Ok(0) | Err(_)) => Err("a number from 1, or `half`".to_owned()),
        }
    }
}

impl Rate {
    /// The rate to run at, and the highest rate if it was measured.
    async fn settle(self, environment: &Arc<BenchEnvironment>) -> anyhow::Result<(u32, Option<f64>)> {
        match self {
            Self::PerSecond(rate) => Ok((rate, None)),
            Self::HalfOfTheHighest => {
                HIGHEST.drive(environment, HIGHEST_EXECUTIONS).await?;
                let highest = HIGHEST.drive(environment, HIGHEST_EXECUTIONS).await?.per_second();
                Ok(((highest / 2.0).max(1.0) as u32, Some(highest)))
            }
        }
    }
}

pub(super) async fn run(args: LatencyArgs, context: &Context) -> anyhow::Result<Exit> {
    ensure!(args.seconds > 0, "--seconds must be at least 1");
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    let options = bare.options.clone();
    let environment = Arc::new(bare.start_environment(EnvironmentOptions::default()).await?);
    let (rate, highest) = args.rate.settle(&environment).await?;
    let pause = Duration::from_secs(1) / rate;
    let paced_ms = Store::paced_commit(&options, pause, PACED_COMMITS).await?.as_secs_f64() * 1_000.0;
    if args.without_redis {
        environment.servers.redis.stop().await?;
    }
    let meter = Meter::read(&environment).await?;
    let pace = Pace { rate, seconds: args.seconds, first: FIRST };
    let starts = Starts::measure(&environment, pace).await?;
    starts.ensure_complete()?;
    let costs = meter.since(&environment, usize::try_from(pace.submits())?).await?;
    if let Some(environment) = Arc::into_inner(environment) {
        environment.stop().await?;
    }

    let (p50, p99, max) = (starts.millis(0.5), starts.millis(0.99), starts.max_millis());
    let (late, latest) = (starts.late(), starts.latest_millis());
    if context.json {
        output::json(&costs.add_to(json!({
            "conditions": conditions, "floor": floor.json(), "rate": rate, "highest_rate": highest,
            "without_redis": args.without_redis,
            "executions": starts.executions(), "p50_ms": p50, "p99_ms": p99, "max_ms": max,
            "median_commit_at_rate_ms": paced_ms, "p50_in_commits_at_rate": p50 / paced_ms,
            "p50_in_median_commits": p50 / floor.commit_ms, "p99_in_median_commits": p99 / floor.commit_ms,
            "submits_sent_late": late, "latest_submit_ms": latest,
        })));
        return Ok(Exit::Done);
    }
    let redis = if args.without_redis { ", Redis stopped" } else { "" };
    if let Some(highest) = highest {
        output::line(format!("single submits, each by itself, submit to FINISHED: {highest:.0}/s at most"));
    }
    output::line(format!("submit to first model call at {rate}/s over {} executions{redis}", starts.executions()));
    output::line(format!(
        "p50 {p50:.2} ms, p99 {p99:.2} ms, longest {max:.2} ms; at the median a bare commit here takes {:.2} ms when \
         they follow each other, and {paced_ms:.2} ms at this rate",
        floor.commit_ms
    ));
    output::line(format!("{late} submits were sent late, at most by {latest:.2} ms, which is counted in"));
    floor.lines().iter().for_each(output::line);
    costs.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}
