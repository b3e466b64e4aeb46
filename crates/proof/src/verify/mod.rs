//! `longhaul verify`: injects faults into a fleet under load, and proves from outside that nothing was lost or done
//! twice.
//!
//! Invariants: the audit rests on the counts of the model and tool servers, which do not know the expected result,
//! and on the database rows, never on what the fleet reports of itself. Every child process is stopped by its process
//! id, even if this process is killed. Data and logs of a failed run are kept.

mod approver;
pub mod audit;
pub mod fault_kind;
mod faults;
mod fleet;
mod hostile;
mod load;
mod mix;
mod model_server;
mod options;
mod report;
mod roll;
mod schedule;
pub mod seen;
mod standby;
pub mod timing;
mod tool_server;

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use longhaul_command::{Context, Exit, output, signals};
use longhaul_config::Sources;
use longhaul_domain::{ExecutionId, SessionId};
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_store::{Store, StoreError};
use longhaul_testkit::receiver::{Receiver, Told};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub use options::VerifyArgs;

use self::{
    approver::Approver,
    fleet::{Counters, Fleet, MARK},
    hostile::Hostile,
    load::{NUMBER, Submits, Submitter},
    mix::{Part, UPDATES_FROM},
    model_server::ModelServer,
    report::Report,
    roll::Roll,
    schedule::{Pace, Random, Schedule},
    seen::{Evidence, Fault, ToldEnd},
    tool_server::ToolServer,
};

/// Longest wait for all executions to end after the load.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest wait for the sweep to clear what executions leave behind.
const CLEARING: Duration = Duration::from_secs(15);
/// Longest time to read the rows after faults.
const READING: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Environment variables passed to the children. Any other could make two runs differ, and a model key could cost
/// money.
const INHERITED: [&str; 5] = ["PATH", "HOME", "TMPDIR", "LANG", "LONGHAUL__TELEMETRY__LOG_FILTER"];

/// Runs the verification.
///
/// # Errors
/// The fleet cannot be started, or a server does not start again. A violated bar is an exit code, not an error.
pub async fn run(args: VerifyArgs, context: &Context) -> anyhow::Result<Exit> {
    let shutdown = CancellationToken::new();
    signals::with_shutdown(shutdown.clone(), Box::pin(verify(args, context, shutdown))).await
}

async fn verify(args: VerifyArgs, context: &Context, shutdown: CancellationToken) -> anyhow::Result<Exit> {
    let started = SystemClock::new().now();
    let seed = args.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0 >> 32);
    let dir = std::env::temp_dir().join(format!("longhaul-verify-{}", uuid::Uuid::new_v4().simple()));
    output::note(format!("seed {seed}, data and logs in {}", dir.display()));
    let driven = Box::pin(drive(&args, seed, &dir, context.sources(Vec::new()), &shutdown)).await;
    let Some(evidence) = driven.with_context(|| format!("the data and the logs are in {}", dir.display()))? else {
        let _ = fs::remove_dir_all(&dir);
        return Ok(Exit::Interrupted);
    };
    let findings = audit::judge(&evidence);
    let report = Report::new(&evidence, &findings, &args, seed, started);
    let path = args
        .report
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("longhaul-verify-{}.json", started.format("%Y%m%dT%H%M%SZ"))));
    report.write(&path)?;
    if context.json {
        output::json(&report.to_json())
    } else {
        report.print()
    }
    output::note(format!("\nreport: {}", path.display()));
    if report.holds() && !args.keep {
        fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    } else {
        output::note(format!("data and logs: {}", dir.display()));
    }
    Ok(if report.holds() { Exit::Done } else { Exit::Failure })
}

/// Starts the fleet, watches it, and stops it in every case. Returns `None` if it was interrupted.
async fn drive(
    args: &VerifyArgs,
    seed: u64,
    dir: &Path,
    sources: Sources,
    shutdown: &CancellationToken,
) -> anyhow::Result<Option<Evidence>> {
    let (model, tools) = (ModelServer::start(args.mix()).await?, ToolServer::start().await?);
    let receiver = Receiver::start().await?;
    let webhook_url = args.mix().has(Part::Webhooks).then(|| receiver.url());
    let counters = Counters { model_url: model.url(), model: model.switch(), tools_url: tools.url(), webhook_url };
    let mut environment = sources.environment;
    environment.retain(|name, _| INHERITED.contains(&name.as_str()));
    let mut fleet = Fleet::start(dir, args.workers.into(), counters, environment.into_iter().collect()).await?;
    let watched = Box::pin(watch(args, seed, &mut fleet));
    match shutdown.run_until_cancelled(watched).await {
        Some(Ok(evidence)) => {
            fleet.stop().await?;
            let told = args.mix().has(Part::Webhooks).then(|| receiver.told().iter().map(told_end).collect());
            let evidence = Evidence { asked: model.asked(), effects: tools.effects(), told, ..evidence };
            Ok(Some(evidence.with_numbered_runs()))
        }
        Some(Err(error)) => {
            fleet.kill().await?;
            Err(error)
        }
        None => fleet.kill().await.map(|()| None),
    }
}

/// Runs the load and the faults, waits until the fleet is idle, and reads the rows.
async fn watch(args: &VerifyArgs, seed: u64, fleet: &mut Fleet) -> anyhow::Result<Evidence> {
    let submitter = Submitter::new(fleet, args.mix())?;
    let (submits, end) = (submitter.submits(), CancellationToken::new());
    let load = AbortOnDropHandle::new(tokio::spawn(submitter.run(args.rate, end.clone())));
    let _approver = AbortOnDropHandle::new(tokio::spawn(Approver::new(fleet)?.run(end.clone())));
    let attack = args.mix().has(Part::Hostile).then(|| Hostile::new(fleet, args.rate, seed)).transpose()?;
    let attack = attack.map(|hostile| AbortOnDropHandle::new(tokio::spawn(hostile.run(end.clone()))));
    let (shown, roll) = (Shown::start(args.duration, &fleet.store, &submits), Roll::start(&fleet.store));
    let faults = disturb(args, seed, fleet, &shown).await?;
    end.cancel();
    let load = load.await.context("the load")?;
    if let Some(attack) = attack {
        attack.await.context("the hostile tenant")?;
    }
    quiet(fleet, &shown).await?;
    shown.bar.finish_and_clear();
    let rows = read(fleet, &roll).await?;
    fleet.revive().await?;
    Ok(Evidence {
        submits: submits.all(),
        faults,
        load: Some(load),
        processes: fleet.processes.clone(),
        complaints: fleet.complaints.clone(),
        wakeups_lost: fleet.wakeups_lost,
        ..rows
    })
}

/// Injects one fault after another until the time is over.
async fn disturb(args: &VerifyArgs, seed: u64, fleet: &mut Fleet, shown: &Shown) -> anyhow::Result<Vec<Fault>> {
    let pace = Pace::new(args.timing, args.every, args.duration);
    let (mut random, mut schedule) = (Random::new(seed), Schedule::new(args.kinds(), pace));
    let started = Instant::now();
    let mut faults = Vec::new();
    while let Some((wait, kind)) = schedule.next(started.elapsed(), &mut random) {
        sleep(wait).await;
        fleet.revive().await?;
        shown.say(&format!("{:>6.1} s  {}", started.elapsed().as_secs_f64(), kind.name()));
        faults.push(faults::perform(kind, fleet, &mut random).await.with_context(|| kind.name())?);
    }
    sleep_until(started + schedule.ends_at(started.elapsed())).await;
    Ok(faults)
}

/// Waits until every execution is over and the sweep has cleared what they leave, each within its limit.
async fn quiet(fleet: &mut Fleet, shown: &Shown) -> anyhow::Result<()> {
    shown.say("the load has ended; waiting for what is under way");
    let give_up = Instant::now() + PATIENCE;
    while fleet.store.open_and_all().await.is_ok_and(|(open, _)| open > 0) && Instant::now() < give_up {
        sleep(LOOK_EVERY).await;
        fleet.revive().await?;
    }
    let give_up = Instant::now() + CLEARING;
    while patiently(|| fleet.store.leftovers()).await? != seen::Evidence::default().leftovers
        && Instant::now() < give_up
    {
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Reads the rows of the tenant under audit; of the hostile one those that FAILED.
async fn read(fleet: &Fleet, roll: &Roll) -> anyhow::Result<Evidence> {
    let (store, tenant) = (&fleet.store, fleet.tenant);
    let executions = patiently(|| store.audited_executions(tenant, (NUMBER, MARK), UPDATES_FROM)).await?;
    let ids: HashSet<ExecutionId> = executions.iter().map(|execution| execution.id).collect();
    let sessions: HashSet<SessionId> =
        executions.iter().filter_map(|execution| execution.turn.map(|turn| turn.session)).collect();
    let mut attempts = patiently(|| store.audited_attempts()).await?;
    attempts.retain(|attempt| ids.contains(&attempt.execution));
    let mut steps = patiently(|| store.audited_steps()).await?;
    steps.retain(|step| ids.contains(&step.execution));
    let mut transcripts = patiently(|| store.audited_transcripts()).await?;
    transcripts.retain(|transcript| sessions.contains(&transcript.session));
    Ok(Evidence {
        workers: patiently(|| roll.all(store)).await?,
        executions,
        attempts,
        steps,
        budgets: patiently(|| store.audited_budgets()).await?,
        memories: patiently(|| store.audited_memories()).await?,
        projects: patiently(|| store.audited_projects(NUMBER)).await?,
        schedules: patiently(|| store.audited_schedules(tenant)).await?,
        transcripts,
        failed_of_others: patiently(|| store.failed_of(fleet.hostile_tenant)).await?,
        histories: patiently(|| store.broken_histories()).await?,
        leftovers: patiently(|| store.leftovers()).await?,
        ..Evidence::default()
    })
}

fn told_end(told: &Told) -> ToldEnd {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ToldEnd {
        id: told.id.clone(),
        event: text(&told.body["type"]),
        execution: text(&told.body["data"]["execution_id"]),
    }
}

/// Repeats a query after a retryable error: a fault may have ended this process's sessions.
async fn patiently<T, F: Future<Output = Result<T, StoreError>>>(ask: impl Fn() -> F) -> anyhow::Result<T> {
    let give_up = Instant::now() + READING;
    loop {
        match ask().await {
            Err(error) if error.is_retryable() && Instant::now() < give_up => sleep(LOOK_EVERY).await,
            answered => return Ok(answered?),
        }
    }
}

/// The progress line.
struct Shown {
    bar: ProgressBar,
    _updating: AbortOnDropHandle<()>,
}

impl Shown {
    fn start(duration: Option<Duration>, store: &Store, submits: &Submits) -> Self {
        let bar = ProgressBar::new(duration.unwrap_or_default().as_secs());
        let template = match duration {
            Some(_) => "{spinner} {elapsed} of {len} s  {msg}",
            None => "{spinner} {elapsed}  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let (shown, store, submits) = (bar.clone(), store.clone(), submits.clone());
        let updating = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (sent, answered) = submits.counts();
                let over =
                    store.open_and_all().await.map_or_else(|_| "?".into(), |(open, all)| (all - open).to_string());
                shown.set_message(format!("{sent} submitted, {answered} answered, {over} over"));
                sleep(LOOK_EVERY).await;
            }
        }));
        Self { bar, _updating: updating }
    }

    /// Prints a line above the progress line.
    fn say(&self, text: &str) {
        if self.bar.is_hidden() { output::note(text) } else { self.bar.println(text) }
    }
}
