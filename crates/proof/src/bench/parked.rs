//! Many executions that wait for a person: the memory and CPU time of a worker process meanwhile, compared with the
//! same process when idle.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use longhaul_command::{Context, Exit, output};
use longhaul_domain::WaitReason;
use longhaul_sdk::{
    AgentSpec, DefinitionSpec,
    approvals::{Access, ApprovalsSpec},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    bare_commits::Floor,
    conditions::conditions,
    costs::Meter,
    environment::{Bare, BenchEnvironment, EnvironmentOptions, agent},
    load::Load,
    model::Answers,
};

/// Key of the agent and definition whose calls need an approval.
const ASKING: &str = "bench-asking";
/// Time for the effects of a wave of executions to settle before a measurement.
const SETTLES: Duration = Duration::from_secs(5);
/// Longest time without a newly parked execution.
const GIVE_UP: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct ParkedArgs {
    /// Executions parked at once
    #[arg(long, default_value_t = 20_000)]
    executions: usize,
    /// Duration of the measurement of each state, in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    #[command(flatten)]
    load: Load,
}

pub(super) async fn run(args: ParkedArgs, context: &Context) -> anyhow::Result<Exit> {
    ensure!(args.executions > 0, "--executions must be at least 1");
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    // One call, which runs at once or waits for an approval.
    let answers = Answers { rounds: 1, ..Answers::default() };
    let environment =
        Arc::new(bare.start_environment(EnvironmentOptions { answers, ..EnvironmentOptions::default() }).await?);
    let approvals = ApprovalsSpec { default: Access::Ask, ..ApprovalsSpec::default() };
    environment.store.put_shared_agent(&AgentSpec { approvals, ..agent(ASKING) }).await?;
    environment.store.put_shared_definition(&DefinitionSpec::new(ASKING, ASKING)).await?;
    let seconds = Duration::from_secs(args.seconds.into());

    let started = Resting::watch(&environment, seconds).await?;
    // Run as many executions first: memory kept from a busy time is no cost of waiting executions.
    args.load.drive(&environment, args.executions).await?;
    let idle = Resting::watch(&environment, seconds).await?;
    let meter = Meter::read(&environment).await?;
    args.load.submit(&environment, ASKING, args.executions).await?;
    wait_until_parked(&environment, args.executions).await?;
    let costs = meter.since(&environment, args.executions).await?;
    let parked = Resting::watch(&environment, seconds).await?;
    if let Some(environment) = Arc::into_inner(environment) {
        environment.stop().await?;
    }

    if context.json {
        output::json(&costs.add_to(json!({
            "conditions": conditions, "floor": floor.json(), "parked": args.executions, "seconds": args.seconds,
            "just_started": started.json(), "idle_after_as_many": idle.json(), "while_parked": parked.json(),
        })));
        return Ok(Exit::Done);
    }
    output::line(format!("{} executions parked, each state looked at for {} s", args.executions, args.seconds));
    output::line(format!("just started:                     {}", started.line()));
    output::line(format!("idle after as many have FINISHED: {}", idle.line()));
    output::line(format!("while they are parked:            {}", parked.line()));
    output::line("to park them:");
    costs.lines().iter().for_each(output::line);
    floor.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}

async fn wait_until_parked(environment: &BenchEnvironment, executions: usize) -> anyhow::Result<()> {
    let (mut most, mut changed) = (0, Instant::now());
    loop {
        let waiting = environment.store.waiting().await?;
        let parked = waiting.iter().find(|(reason, _)| *reason == WaitReason::Approval).map_or(0, |(_, n)| *n);
        if parked >= u64::try_from(executions)? {
            return Ok(());
        }
        if parked > most {
            (most, changed) = (parked, Instant::now());
        }
        ensure!(changed.elapsed() < GIVE_UP, "{parked} of {executions} executions are parked, and no more");
        sleep(LOOK_EVERY).await;
    }
}

/// Resource usage of an environment without activity.
struct Resting {
    worker_megabytes: f64,
    /// Percent of a core, as are those below.
    worker: f64,
    postgres: f64,
    redis: f64,
}

impl Resting {
    async fn watch(environment: &BenchEnvironment, seconds: Duration) -> anyhow::Result<Self> {
        sleep(SETTLES).await;
        let (before, began) = (environment.used(), Instant::now());
        sleep(seconds).await;
        let (after, took) = (environment.used(), began.elapsed().as_secs_f64());
        let percent = |then: f64, now: f64| 100.0 * (now - then) / took;
        Ok(Self {
            worker_megabytes: environment.worker_bytes() as f64 / 1e6,
            worker: percent(before.worker, after.worker),
            postgres: percent(before.postgres, after.postgres),
            redis: percent(before.redis, after.redis),
        })
    }

    fn json(&self) -> Value {
        json!({
            "worker_megabytes": self.worker_megabytes, "worker_percent_of_a_core": self.worker,
            "postgres_percent_of_a_core": self.postgres, "redis_percent_of_a_core": self.redis,
        })
    }

    fn line(&self) -> String {
        let Self { worker_megabytes, worker, postgres, redis } = self;
        format!(
            "worker {worker_megabytes:.0} MB and {worker:.2} % of a core, PostgreSQL {postgres:.2} %, Redis {redis:.2} \
             %"
        )
    }
}
