//! `longhaul bench`: measures this machine, and reports the conditions with every number.
//!
//! Invariants: private servers with every write durable; API and worker as separate processes, so that the usage of
//! each is known; model and load in this process, on the same cores. Numbers of different or busy machines are not
//! comparable; the ratios of one run are.

mod bare_commits;
mod chat;
mod conditions;
mod costs;
mod cpu;
mod duties;
mod environment;
mod in_flight;
mod latency;
mod limits;
mod lists;
mod load;
mod long;
mod model;
mod neighbours;
mod page;
mod parked;
mod progress;
mod recovery;
mod starts;
mod sweep;
mod throughput;
mod tools;
mod webhooks;
mod wire;
mod worker;

use longhaul_command::{Context, Exit, run as runtime};
use longhaul_config::Config;

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
  longhaul bench long --turns 1000 --context-kb 200
  longhaul bench neighbours --attack schemas --attack batches
  longhaul bench neighbours --attack permits --seconds 100
  longhaul bench chat --chats 20 --idle 10000 --reconnects 1000
  longhaul bench sweep --workers 10,100,1000
  longhaul bench duties --rows 1000000
  longhaul bench page --rows 10000000
  longhaul bench webhooks --delete 1000000
  longhaul bench limits --workers 4 --tenants
  longhaul bench wire --rate 20 --seconds 20

Build with --release first; close what else runs. docs/reference/performance.md says how to read the numbers.")]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Measure executions per second from submit to FINISHED, and compare with a floor of bare commits
    Throughput(throughput::ThroughputArgs),
    /// Measure the time from submit to the first model call at a given rate
    Latency(latency::LatencyArgs),
    /// Measure memory and rate of many executions that wait for a slow model at once
    InFlight(in_flight::InFlightArgs),
    /// Measure memory and CPU time of many executions that wait for a person, and compare with an idle worker
    Parked(parked::ParkedArgs),
    /// Measure the time from the kill of a worker until its executions run again, and the rate before and after
    Recovery(recovery::RecoveryArgs),
    /// Measure late turns of one long execution against early ones, its resumption after a kill, and reading it
    Long(long::LongArgs),
    /// Measure one tenant's start latency while another attacks, and compare with quiet and ordinary load
    Neighbours(neighbours::NeighboursArgs),
    /// Measure the delay that Longhaul adds to streamed text, the cost of idle sessions, and readers that reconnect
    Chat(chat::ChatArgs),
    /// Measure what the sweep of fleets of different sizes costs PostgreSQL
    Sweep(sweep::SweepArgs),
    /// Measure what each duty of the sweep reads beside rows that are not due
    Duties(duties::DutiesArgs),
    /// Measure the plan and the time of every list filter over many rows
    Lists(lists::ListsArgs),
    /// Measure the time that the server takes for screens of the page over many stored executions
    Page(page::PageArgs),
    /// Measure deliveries per second to a slow receiver, and ends of executions beside the deletion of a webhook
    Webhooks(webhooks::WebhooksArgs),
    /// Measure what is reached of a provider's limits, and how many calls it refuses
    Limits(limits::LimitsArgs),
    /// Measure what one call of a model over a wire of other clients adds, and the calls a second of durable runs
    Wire(wire::WireArgs),
    /// Run the worker of the benchmarks
    #[command(hide = true)]
    Worker,
}

/// Runs the selected benchmark.
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
        What::Long(args) => runtime::plain(long::run(args, context)),
        What::Neighbours(args) => runtime::plain(neighbours::run(args, context)),
        What::Chat(args) => runtime::plain(chat::run(args, context)),
        What::Sweep(args) => runtime::plain(sweep::run(args, context)),
        What::Duties(args) => runtime::plain(duties::run(args, context)),
        What::Lists(args) => runtime::plain(lists::run(args, context)),
        What::Page(args) => runtime::plain(page::run(args, context)),
        What::Webhooks(args) => runtime::plain(webhooks::run(args, context)),
        What::Limits(args) => runtime::plain(limits::run(args, context)),
        What::Wire(args) => runtime::plain(wire::run(args, context)),
        What::Worker => {
            let config: Config = context.load(Vec::new())?;
            runtime::role(config, "longhaul-worker", worker::run)
        }
    }
}
