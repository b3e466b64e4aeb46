//! `longhaul bench`: what this machine does, with the conditions beside every number.
//!
//! Both benchmarks start private servers of their own, run API and worker in this process against the scripted model, and keep
//! every write durable. Numbers of different machines, or of a busy one, do not compare; the ratios of one run do.

mod latency;
mod lists;
mod stand;
mod throughput;

use crate::{context::Context, exit::Exit};

/// Measure this machine: private servers, the scripted model, every write durable
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  longhaul bench throughput
  longhaul bench latency --rate 20 --seconds 20

Build with --release first; close what else runs. docs/performance.md says how to read the numbers.")]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Executions per second from submit to FINISHED, beside the floor of bare commits
    Throughput(throughput::ThroughputArgs),
    /// From the submit to the first model call, at a low rate
    Latency(latency::LatencyArgs),
    /// The plan and the time of every list filter over many rows
    Lists(lists::ListsArgs),
}

/// Runs the benchmark.
///
/// # Errors
/// The servers cannot be started, or executions do not finish.
pub async fn run(args: BenchArgs, context: &Context) -> anyhow::Result<Exit> {
    match args.what {
        What::Throughput(args) => throughput::run(args, context).await,
        What::Latency(args) => latency::run(args, context).await,
        What::Lists(args) => lists::run(args, context).await,
    }
}
