//! Cost of a fleet's sweep on PostgreSQL: the same executions held by fleets of different sizes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use longhaul_command::{Context, Exit, output};
use longhaul_config::{Config, Sources};
use longhaul_store::{Store, StoreOptions};
use longhaul_worker::{SweepCounts, SweepLoad, WorkerBuilder};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{bare_commits::Floor, conditions::conditions, cpu, environment::Bare};

/// For connections, plans, and the first run of every duty.
const SETTLES: Duration = Duration::from_secs(5);
/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct SweepArgs {
    /// Workers of each fleet, one fleet after the other
    #[arg(
        long,
        value_delimiter = ',',
        default_values_t = [10, 100, 1_000],
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    workers: Vec<u32>,
    /// Executions that a fleet holds
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    held: u32,
    /// Seconds of each measurement; duties that are due less often run before it
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Connections that the workers of a fleet share
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    connections: u32,
}

pub(super) async fn run(args: SweepArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    drop(bare);
    let mut fleets = Vec::new();
    for workers in &args.workers {
        fleets.push(Swept::measure(&args, *workers).await?);
    }
    if context.json {
        output::json(&json!({
            "conditions": conditions, "floor": floor.json(), "held": args.held, "seconds": args.seconds,
            "connections": args.connections, "fleets": fleets.iter().map(Swept::json).collect::<Vec<_>>(),
            "cpu_microseconds_per_look": look_cost(&fleets),
        }));
        return Ok(Exit::Done);
    }
    output::line(format!("{} executions held, each fleet looked at for {} s", args.held, args.seconds));
    print(&fleets);
    floor.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}

fn print(fleets: &[Swept]) {
    fleets.iter().for_each(|fleet| output::line(fleet.line()));
    if let Some(micros) = look_cost(fleets) {
        output::line(format!("between the first fleet and the last, {micros:.0} µs of PostgreSQL's CPU time per look"));
    }
    let names: BTreeSet<_> = fleets.iter().flat_map(|fleet| fleet.duties.keys().copied()).collect();
    let columns: String = fleets.iter().map(|fleet| format!("{:>9}", fleet.workers)).collect();
    output::line(format!("{:<28}{columns} workers", "runs per second in all"));
    for name in names {
        let rates = fleets.iter().map(|fleet| format!("{:>9.2}", fleet.duties.get(name).copied().unwrap_or_default()));
        output::line(format!("{name:<28}{}", rates.collect::<String>()));
    }
}

/// The CPU time of one more look, by the first fleet and the last; `None` when these made about as many.
fn look_cost(fleets: &[Swept]) -> Option<f64> {
    let (first, last) = (fleets.first()?, fleets.last()?);
    let looks = last.looks - first.looks;
    (looks >= 1.0).then(|| 1e6 * (last.cores - first.cores) / looks)
}

/// Work of one fleet and its cost, per second.
struct Swept {
    workers: u32,
    /// CPU seconds of PostgreSQL.
    cores: f64,
    /// Transactions; every statement of the sweep is one.
    statements: f64,
    looks: f64,
    failures: u64,
    duties: BTreeMap<&'static str, f64>,
}

impl Swept {
    async fn measure(args: &SweepArgs, workers: u32) -> anyhow::Result<Self> {
        // Servers of its own: dead rows of the fleet before it would cost this one.
        let bare = Bare::start().await?;
        let config = config(&bare, args.connections)?;
        let store = Store::open(StoreOptions::of_config(&config, "longhaul-bench")?)?;
        store.migrate().await?;
        let tenant = store.ensure_tenant("bench", None).await?;
        store.fill_with_held(tenant.id, i32::try_from(workers)?, i32::try_from(args.held)?).await?;
        store.checkpoint().await?;
        let load = WorkerBuilder::new(config).build()?.sweep_load(workers);
        sleep(SETTLES).await;
        let before = Reading::take(&bare, &store, &load).await?;
        sleep(Duration::from_secs(args.seconds.into())).await;
        let after = Reading::take(&bare, &store, &load).await?;
        Ok(after.since(before, workers))
    }

    fn json(&self) -> Value {
        json!({
            "workers": self.workers, "postgres_cpu_seconds_per_second": self.cores,
            "statements_per_second": self.statements, "looks_per_second": self.looks, "failures": self.failures,
            "duty_runs_per_second": self.duties.values().sum::<f64>(), "duties": self.duties,
        })
    }

    fn line(&self) -> String {
        let Self { workers, cores, statements, looks, failures, duties } = self;
        let runs: f64 = duties.values().sum();
        format!(
            "{workers:>6} workers: PostgreSQL {cores:.3} cores, {statements:.0} statements/s, {looks:.0} looks/s, \
             {runs:.1} runs of duties/s, {failures} failed"
        )
    }
}

/// Counts of a moment.
struct Reading {
    at: Instant,
    cpu_seconds: f64,
    transactions: i64,
    counts: SweepCounts,
}

impl Reading {
    async fn take(bare: &Bare, store: &Store, load: &SweepLoad) -> anyhow::Result<Self> {
        let cpu_seconds = bare.postgres.pid().and_then(cpu::seconds_with_children);
        Ok(Self {
            at: Instant::now(),
            cpu_seconds: cpu_seconds.context("the CPU time of PostgreSQL cannot be read")?,
            counts: load.counts(),
            transactions: store.written().await?.commits,
        })
    }

    fn since(&self, before: Self, workers: u32) -> Swept {
        let seconds = (self.at - before.at).as_secs_f64();
        let (now, then) = (&self.counts, &before.counts);
        let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
        let runs = now.runs.iter().map(|(name, runs)| (*name, then.runs.get(name).copied().unwrap_or_default(), runs));
        Swept {
            workers,
            cores: (self.cpu_seconds - before.cpu_seconds) / seconds,
            statements: (self.transactions - before.transactions) as f64 / seconds,
            looks: rate(now.looks, then.looks),
            failures: now.failures - then.failures,
            duties: runs.map(|(name, then, now)| (name, rate(*now, then))).collect(),
        }
    }
}

/// Of a worker on these servers, whose connections are those of all simulated ones.
pub(super) fn config(bare: &Bare, connections: u32) -> anyhow::Result<Config> {
    let environment = [
        ("DATABASE_URL", bare.postgres.url().to_owned()),
        ("REDIS_URL", bare.redis.url().to_owned()),
        // Nothing is asked there.
        ("LONGHAUL_LLM_URL", "http://127.0.0.1:9".to_owned()),
        // One of them would be the heartbeat's.
        ("LONGHAUL__DATABASE__MAX_CONNECTIONS", (connections + 1).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value));
    Ok(Config::load(&Sources { file: None, environment: environment.into(), flags: Vec::new() })?)
}
