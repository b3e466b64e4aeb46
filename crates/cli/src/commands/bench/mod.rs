//! `longhaul bench`: what this machine does, with the conditions beside every number.
//!
//! What must hold: private servers with every write durable; API and worker are processes of their own, so that what each uses
//! is known; the model and the load run in this process and use the same cores. Numbers of different machines, or of a busy
//! one, do not compare; the ratios of one run do.

mod conditions;
mod costs;
mod course;
mod cpu;
mod floor;
mod in_flight;
mod latency;
mod lists;
mod load;
mod model;
mod neighbours;
mod parked;
mod recovery;
mod stand;
mod starts;
mod throughput;
mod tools;
mod worker;

use longhaul_shared::config::Config;

use crate::{context::Context, exit::Exit, run as runtime};

/// Measure this machine: private servers, a model that costs nothing, every write durable
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  longhaul bench throughput
  longhaul bench throughput --rounds 5 --mcp
  longhaul bench throughput --stored 1000000
  longhaul bench latency --rate 20 --seconds 20
  longhaul bench latency --rate half
  longhaul bench in-flight --executions 10000
  longhaul bench parked --executions 20000
  longhaul bench recovery --rounds 5
  longhaul bench neighbours --attack schemas --attack batches

Build with --release first; close what else runs. docs/performance.md says how to read the numbers.")]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Executions per second from submit to FINISHED, beside the floor of bare commits
    Throughput(throughput::ThroughputArgs),
    /// From the submit to the first model call, at a given rate
    Latency(latency::LatencyArgs),
    /// Many executions that wait for a slow model at once: memory, and the rate beside the ideal one
    InFlight(in_flight::InFlightArgs),
    /// Many executions that wait for a person: memory and processor time beside an idle worker's
    Parked(parked::ParkedArgs),
    /// From the kill of a worker until what it held runs again, and the rate before and after
    Recovery(recovery::RecoveryArgs),
    /// The start latency of one tenant while another attacks, beside quiet and an ordinary load
    Neighbours(neighbours::NeighboursArgs),
    /// The plan and the time of every list filter over many rows
    Lists(lists::ListsArgs),
    /// The worker of the benchmarks
    #[command(hide = true)]
    Worker,
}

/// Runs the benchmark.
///
/// # Errors
/// The servers cannot be started, or executions do not finish.
pub fn run(args: BenchArgs, context: &Context) -> anyhow::Result<Exit> {
    match args.what {
        What::Throughput(args) => runtime::plain(throughput::run(args, context)),
        What::Latency(args) => runtime::plain(latency::run(args, context)),
        What::InFlight(args) => runtime::plain(in_flight::run(args, context)),
        What::Parked(args) => runtime::plain(parked::run(args, context)),
        What::Recovery(args) => runtime::plain(recovery::run(args, context)),
        What::Neighbours(args) => runtime::plain(neighbours::run(args, context)),
        What::Lists(args) => runtime::plain(lists::run(args, context)),
        What::Worker => {
            let config: Config = context.load(Vec::new())?;
            runtime::role(config, "longhaul-worker", worker::run)
        }
    }
}
