//! Kills workers under load: the time until their executions run again, and the rate before and after.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::ensure;
use chrono::{DateTime, Utc};
use longhaul_command::{Context, Exit, output};
use longhaul_shared::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{interval, sleep},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    bare_commits::Floor,
    conditions::conditions,
    costs::Meter,
    environment::{Bare, BenchEnvironment, Caller, DEFINITION, EnvironmentOptions, request},
    model::Answers,
};
use crate::verify::{
    fault_kind::FaultKind,
    seen::{Evidence, Fault, Process, Submit},
    timing::{self, RateAfter, Spread},
};

/// Pause of a supervisor before it restarts a worker.
const RESTART_PAUSE: Duration = Duration::from_millis(300);
/// Metadata field that holds the number of an execution.
const NUMBER: &str = "bench";
/// Longest wait for all executions to end after the load.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct RecoveryArgs {
    /// Number of workers to kill, one after another
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds before each kill and after the last; the rate is measured in them
    #[arg(long, default_value_t = 13, value_parser = clap::value_parser!(u32).range(11..=30))]
    pause_seconds: u32,
    /// Executions submitted per second
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    rate: u32,
    /// Delay of the model, in milliseconds; a worker holds the executions submitted in that time, divided by the
    /// number of workers
    #[arg(long, default_value_t = 1_000)]
    delay_ms: u64,
    /// Number of worker processes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=16))]
    workers: u8,
}

pub(super) async fn run(args: RecoveryArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    let answers = Answers { delay: Duration::from_millis(args.delay_ms), ..Answers::default() };
    let options = EnvironmentOptions { workers: args.workers.into(), answers, ..EnvironmentOptions::default() };
    let mut environment = bare.start_environment(options).await?;
    let meter = Meter::read(&environment).await?;
    let (evidence, refused) = kill_workers(&args, &mut environment).await?;
    let submitted = evidence.submits.len();
    // Without the usage of the killed processes, which is lost with them.
    let costs = meter.since(&environment, submitted).await?;
    environment.stop().await?;

    let kill = FaultKind::KillWorker;
    let (again, rates) =
        (timing::run_again(&evidence, kill), timing::rates(&evidence, |kind| kind == FaultKind::KillWorker));
    if context.json {
        output::json(&costs.add_to(json!({
            "conditions": conditions, "floor": floor.json(), "kills": args.rounds, "rate": args.rate,
            "delay_ms": args.delay_ms, "workers": args.workers, "submitted": submitted, "not_taken": refused,
            "run_again_seconds": again, "rates": rates,
        })));
        return Ok(Exit::Done);
    }
    let Spread { cases, p50, p99, max } = again;
    output::line(format!(
        "{} workers killed; {submitted} submits at {}/s, {refused} not taken",
        args.rounds, args.rate
    ));
    output::line(format!("run again: p50 {p50:.2} s, p99 {p99:.2} s, max {max:.2} s, over {cases} executions"));
    for RateAfter { before, after, back_after, .. } in rates {
        let back = back_after.map_or_else(|| "not back before the next".into(), |after| format!("after {after:.2} s"));
        output::line(format!("rate {before:.1}/s before a kill, {after:.1}/s after it; at 95 % {back}"));
    }
    floor.lines().iter().for_each(output::line);
    costs.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}

/// Kills workers one after another under a steady load. Returns the evidence, in the form of `longhaul verify`, and
/// the number of submits that failed.
async fn kill_workers(args: &RecoveryArgs, environment: &mut BenchEnvironment) -> anyhow::Result<(Evidence, usize)> {
    let (clock, pause) = (SystemClock::new(), Duration::from_secs(args.pause_seconds.into()));
    let stop = CancellationToken::new();
    let load = AbortOnDropHandle::new(tokio::spawn(submit(environment.caller.clone(), args.rate, stop.clone())));
    let (mut faults, mut processes) = (Vec::new(), processes(environment));
    for _ in 0..args.rounds {
        sleep(pause).await;
        // The oldest worker.
        let (victim, from) = (environment.worker_pids().first().map(|pid| name(*pid)), clock.now());
        environment.kill_worker(0).await?;
        sleep(RESTART_PAUSE).await;
        environment.add_worker().await?;
        faults.push(Fault { kind: FaultKind::KillWorker, process: victim, from, until: clock.now() });
        processes.extend(self::processes(environment));
    }
    sleep(pause).await;
    stop.cancel();
    let (submitted, refused, period) = load.await??;
    ensure!(submitted > refused, "no submit was taken");
    let give_up = Instant::now() + PATIENCE;
    while let (open @ 1.., all) = environment.store.open_and_all().await? {
        ensure!(Instant::now() < give_up, "{open} of {all} executions are not over");
        sleep(LOOK_EVERY).await;
    }
    let workers = environment.store.audited_workers().await?;
    let tenant = environment.store.ensure_tenant("bench", None).await?.id;
    let evidence = Evidence {
        submits: vec![Submit::default(); submitted],
        faults,
        processes,
        workers: workers.into_iter().map(|one| (one.id, one)).collect::<HashMap<_, _>>(),
        executions: environment.store.audited_executions(tenant, (NUMBER, ""), 0).await?,
        attempts: environment.store.audited_attempts().await?,
        load: Some(period),
        ..Evidence::default()
    };
    Ok((evidence, refused))
}

fn processes(environment: &BenchEnvironment) -> Vec<Process> {
    environment.worker_pids().into_iter().map(|pid| Process { name: name(pid), pid }).collect()
}

fn name(pid: i32) -> String {
    format!("worker with process id {pid}")
}

/// Submits at a steady rate until `stop`. Returns the number of submits, the number of failed ones, and the start and
/// end of the load. A failed submit is only counted, not repeated: the measurement is about accepted ones.
async fn submit(
    caller: Caller,
    rate: u32,
    stop: CancellationToken,
) -> anyhow::Result<(usize, usize, (DateTime<Utc>, DateTime<Utc>))> {
    let clock = SystemClock::new();
    let (mut due, mut submitting) = (interval(Duration::from_secs(1) / rate), JoinSet::new());
    let (mut submitted, mut refused) = (0, 0);
    let started = clock.now();
    while stop.run_until_cancelled(due.tick()).await.is_some() {
        let (caller, body) = (caller.clone(), numbered(submitted));
        submitting.spawn(async move { caller.post("/v1/executions", &body).await.is_err() });
        submitted += 1;
        while let Some(is_refused) = submitting.try_join_next() {
            refused += usize::from(is_refused?);
        }
    }
    let ended = clock.now();
    while let Some(is_refused) = submitting.join_next().await {
        refused += usize::from(is_refused?);
    }
    Ok((submitted, refused, (started, ended)))
}

fn numbered(number: usize) -> Value {
    let mut body = request(DEFINITION, number);
    body["metadata"] = json!({ NUMBER: number });
    body
}
