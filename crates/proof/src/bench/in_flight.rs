//! Many executions in flight against a slow model: the memory of one worker process, and its rate compared with the
//! rate that the model's delay allows.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use longhaul_command::{Context, Exit, output};
use longhaul_testkit::http_server::Protocol;
use serde_json::json;

use super::{
    bare_commits::Floor,
    conditions::conditions,
    costs::Meter,
    environment::{Bare, EnvironmentOptions},
    load::Load,
    model::Answers,
};

/// Interval of memory readings.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(super) struct InFlightArgs {
    /// Executions in flight at once
    #[arg(long, default_value_t = 1_000)]
    executions: usize,
    /// Delay of the model, in milliseconds
    #[arg(long, default_value_t = 10_000)]
    delay_ms: u64,
    /// Number of waves: this many times the executions are run
    #[arg(long, default_value_t = 3)]
    waves: usize,
    /// Serve the model over HTTP/2 with TLS, 100 requests per connection, as providers do; otherwise HTTP/1.1 without
    /// TLS
    #[arg(long)]
    http2: bool,
    #[command(flatten)]
    load: Load,
    /// Executions of each floor measurement
    #[arg(long, default_value_t = 3_000)]
    floor_executions: u32,
}

pub(super) async fn run(args: InFlightArgs, context: &Context) -> anyhow::Result<Exit> {
    ensure!(args.executions > 0 && args.waves > 0, "--executions and --waves must be at least 1");
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, args.floor_executions).await?;
    let delay = Duration::from_millis(args.delay_ms);
    let protocol = if args.http2 { Protocol::Http2 } else { Protocol::Http1 };
    let answers = Answers { delay, protocol, ..Answers::default() };
    let options = EnvironmentOptions { concurrency: args.executions, answers, ..EnvironmentOptions::default() };
    let environment = Arc::new(bare.start_environment(options).await?);
    let (idle, meter) = (environment.worker_bytes(), Meter::read(&environment).await?);
    let total = args.executions * args.waves;
    let running = {
        let (environment, load) = (environment.clone(), args.load);
        tokio::spawn(async move { load.drive(&environment, total).await })
    };
    let mut most = 0;
    while !running.is_finished() {
        most = most.max(environment.worker_bytes());
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let progress = running.await??;
    let costs = meter.since(&environment, total).await?;
    if let Some(environment) = Arc::into_inner(environment) {
        environment.stop().await?;
    }

    let (rate, ideal) = (progress.per_second(), args.executions as f64 / delay.as_secs_f64());
    let settled = progress.settled_per_second();
    let (megabytes, ratio) = (|bytes: u64| bytes as f64 / 1e6, rate / floor.per_second());
    if context.json {
        output::json(&costs.add_to(json!({
            "conditions": conditions, "floor": floor.json(), "in_flight": args.executions, "http2": args.http2,
            "delay_ms": args.delay_ms, "executions": total,
            "worker_megabytes_idle": megabytes(idle), "worker_megabytes_at_most": megabytes(most),
            "executions_per_second": rate, "ideal_per_second": ideal, "ratio_to_ideal": rate / ideal,
            "settled_per_second": settled, "settled_ratio_to_ideal": settled.map(|settled| settled / ideal),
            "ratio_to_floor": ratio,
        })));
        return Ok(Exit::Done);
    }
    output::line(format!("{} in flight against a model of {} ms, {total} executions", args.executions, args.delay_ms));
    output::line(format!("worker: {:.0} MB at most, {:.0} MB idle", megabytes(most), megabytes(idle)));
    output::line(format!("{rate:.1}/s, {:.1} % of the ideal {ideal:.1}/s", 100.0 * rate / ideal));
    if let Some(settled) = settled {
        let percent = 100.0 * settled / ideal;
        output::line(format!(
            "{settled:.1}/s once it has settled, {percent:.1} % of the ideal rate: from a third of them on, up to nine \
             tenths"
        ));
    }
    floor.lines().iter().for_each(output::line);
    output::line(format!("ratio to the floor: {ratio:.2}"));
    costs.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}
