//! Fleet-wide duties: bury dead workers, reap their executions, wake due executions, republish wake-ups. The
//! first worker to take a due duty runs it (core-rules 23, docs/adr/0038-one-sweep.md). A duty that runs twice
//! does no harm, because the store skips locked rows.
//!
//! Over 500 lines: the table of the duties stands beside what each of them does.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use longhaul_agent::lease::WorkerLease;
use longhaul_queue::QueueName;
use longhaul_sdk::Interrupt;
use longhaul_shared::{
    config::{QuarantineConfig, WorkerConfig},
    domain::{ExecutionId, WaitReason, WorkerId},
    telemetry::metrics::{self, QueueBacklog},
};
use longhaul_store::{
    StoreError,
    duties::DoneDuty,
    expiry::{KEEP_KEYS, KEYS_PORTION},
    lease_writer::LeaseWriter,
    maintenance::Runnable,
    outcomes::{Conclusion, LeaseEnd},
    providers::COUNT_WORKERS,
    quarantine::QuarantineRules,
    workers::HeldLease,
};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::pool::Serves;
use crate::{deps::Deps, runtime::held_leases::HeldLeases};

/// Executions moved by one statement.
const CHUNK: i64 = 500;
/// Chunks moved in one tick; the rest waits for the next, so that no duty starves the others.
const CHUNKS: usize = 20;
/// Time past `active_until` after which the sweep ends the execution.
const OVERDUE_GRACE: Duration = Duration::from_secs(15);
/// Time of steady renewals required before held, overdue executions are ended: after an outage, attempts write
/// their results first.
const STEADY: Duration = Duration::from_secs(10);
/// Time an execution may be runnable without a live worker that serves it, before it waits with `no_worker`.
const UNSERVED_GRACE: Duration = Duration::from_secs(10);
/// Age at which an unknown lease counts as leaked: two seconds more than the wait for a claim's reply, so that a
/// late reply is not handed back while it is being processed.
const CLAIM_GRACE: Duration = Duration::from_secs(7);
/// Period of the search for overdue executions whose own worker does not end them. It reads all held leases.
const WEDGED_EVERY: Duration = Duration::from_secs(60);
/// Period of the fallbacks for lost wakes that scan all waiting executions or slots.
const NET_EVERY: Duration = Duration::from_secs(30);
/// Period of the wake of executions whose serve key a worker now serves.
const SERVED_EVERY: Duration = Duration::from_secs(2);
/// Period of the quarantine duty, which notices a new build or the end of a canary.
const QUARANTINE_EVERY: Duration = Duration::from_secs(2);
const UNSERVED_EVERY: Duration = Duration::from_secs(5);
/// Period of the fallback for lost wakes of decided requests, and the age up to which it looks for decisions:
/// longer than any pause of the sweep. An older one wakes at its `wait_until`, which is never later than the next
/// expiry.
const DECIDED_EVERY: Duration = Duration::from_secs(10);
const DECIDED_WINDOW: Duration = Duration::from_secs(3_600);
/// Maximum age of the tenants' shares known to a worker.
const EXCHANGE_EVERY: Duration = Duration::from_secs(2);
/// Maximum age of the count of live workers, by which limits are divided when Redis is down.
const WORKERS_EVERY: Duration = Duration::from_secs(5);
const TIDY_EVERY: Duration = Duration::from_secs(600);
const ALARMS_EVERY: Duration = Duration::from_secs(30);
/// History partitions made ahead, in weeks.
const WEEKS_AHEAD: i32 = 4;
/// Period of the deletion of idempotency keys, and the maximum number of portions each time.
const KEYS_EVERY: Duration = Duration::from_secs(10);
const KEYS_PORTIONS: usize = 100;
const SERVE_KEYS_EVERY: Duration = Duration::from_secs(3_600);
/// Time a serve key is kept after the last submit with it: much longer than an API process caches that it stored
/// the key.
const KEEP_SERVE_KEYS: Duration = Duration::from_secs(24 * 3_600);
/// Runnable executions counted per queue for metrics and wake-ups.
const HEAD_CAP: i64 = 1_000;

/// Duty taken only by a worker whose renewals prove that Postgres is healthy.
const REAP: &str = "bury and reap";

/// Buries and reaps dead workers while this worker's own renewals prove that Postgres is healthy (core-rules 4).
pub(crate) async fn reap(deps: Arc<Deps>, lease: Arc<WorkerLease>, config: WorkerConfig) {
    let mut tick = ticks(config.reaper_tick);
    loop {
        tick.tick().await;
        if lease.steady_for() < config.lease {
            continue;
        }
        if let Err(error) = reap_once(&deps, &config).await {
            // Postgres may be in trouble: declare no worker dead until renewals have been steady again.
            lease.faltered();
            failed(REAP, &error);
        }
    }
}

pub(super) async fn reap_once(deps: &Deps, config: &WorkerConfig) -> Result<DutiesRun, StoreError> {
    let period = between(config.reaper_tick, config.reaper_tick);
    let looked = deps.store.take_duties(&[(REAP, period)]).await?;
    let Some(taken_at) = looked.first().and_then(|duty| duty.taken_at) else { return Ok(DutiesRun::default()) };
    bury_and_reap(deps, config.lease).await?;
    deps.store.finish_duties(&[DoneDuty { name: REAP, taken_at, period, told: None }]).await?;
    Ok(DutiesRun { ran: vec![REAP], failures: 0 })
}

/// Time after which a duty of this period is due, if workers check every `tick`: half a tick less, so that the
/// check one period later finds it due.
fn between(period: Duration, tick: Duration) -> Duration {
    period.saturating_sub(tick / 2)
}

fn failed(duty: &'static str, error: &StoreError) {
    metrics::sweep_failed(duty);
    tracing::warn!(duty, error = %error, "a duty of the sweep failed");
}

async fn bury_and_reap(deps: &Deps, lease: Duration) -> Result<(), StoreError> {
    for worker in deps.store.bury_expired_workers(lease).await? {
        tracing::warn!(worker.id = %worker, "a worker's lease ran out; its executions are taken back");
    }
    for _ in 0..CHUNKS {
        let reaped = deps.store.reap(CHUNK).await?;
        deps.publisher.look(reaped.iter().map(|one| one.id.0));
        for one in &reaped {
            match &one.failure_code {
                Some(code) => {
                    tracing::warn!(execution.id = %one.id, failure.code = code, "execution ended at its worker's death")
                }
                None => deps.publisher.wake(&one.queue, one.id, Some(WaitReason::Worker)),
            }
        }
        if !reaped.is_empty() {
            // The slots of reaped executions are free.
            announce(deps, &deps.store.sweep_slots(CHUNK).await?);
        }
        if (reaped.len() as i64) < CHUNK {
            break;
        }
    }
    Ok(())
}

/// Takes the due duties of the sweep and runs them, every tick.
pub(crate) async fn sweep(deps: Arc<Deps>, config: WorkerConfig) {
    let mut tick = ticks(config.sweep_tick);
    let (rules, asked) = (rules(&config.quarantine), asked(config.sweep_tick));
    loop {
        tick.tick().await;
        if let Err(error) = sweep_once(&deps, &rules, &asked).await {
            failed("take duties", &error);
        }
    }
}

/// Duties that one look took and ran.
#[derive(Debug, Default)]
pub(super) struct DutiesRun {
    pub(super) ran: Vec<&'static str>,
    pub(super) failures: u64,
}

type Run = for<'a> fn(&'a Deps, &'a QuarantineRules) -> BoxFuture<'a, Result<(), StoreError>>;
type Count = for<'a> fn(&'a Deps) -> BoxFuture<'a, Result<Value, StoreError>>;

enum Work {
    Do(Run),
    /// A count made by one worker and exported by all.
    Tell(Count, fn(&Value)),
}

/// One duty of the sweep.
struct Duty {
    name: &'static str,
    /// Minimum period; zero for every tick.
    every: Duration,
    work: Work,
}

const fn each_tick(name: &'static str, run: Run) -> Duty {
    each(Duration::ZERO, name, run)
}

const fn each(every: Duration, name: &'static str, run: Run) -> Duty {
    Duty { name, every, work: Work::Do(run) }
}

const fn told(every: Duration, name: &'static str, count: Count, show: fn(&Value)) -> Duty {
    Duty { name, every, work: Work::Tell(count, show) }
}

/// Duties of the sweep, in order of execution.
const DUTIES: [Duty; 25] = [
    // Before the waits of their executions, which end at the same time: no reader must find an overdue request
    // still waiting.
    each_tick("expire requests", |deps, _| Box::pin(announced(deps, deps.store.expire_requests(CHUNK, None)))),
    each(DECIDED_EVERY, "wake what is decided", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_decided(CHUNK, DECIDED_WINDOW)))
    }),
    each_tick("wake what is due", |deps, _| Box::pin(wake_due(deps))),
    each(SERVED_EVERY, "wake what is served", |deps, _| Box::pin(announced(deps, deps.store.wake_served(CHUNK)))),
    each_tick("end what is overdue", |deps, _| Box::pin(end_overdue(deps))),
    each(WEDGED_EVERY, "end what nobody looks after", |deps, _| Box::pin(end_neglected(deps))),
    each_tick("cancel descendants", |deps, _| Box::pin(cancel_descendants(deps))),
    each_tick("fold budgets", |deps, _| Box::pin(announced(deps, deps.store.fold_budgets(CHUNK)))),
    each(UNSERVED_EVERY, "clear leaked slots", |deps, _| Box::pin(deps.store.clear_leaked_slots())),
    each_tick("sweep slots", |deps, _| Box::pin(announced(deps, deps.store.sweep_slots(CHUNK)))),
    each_tick("fold counts", |deps, _| Box::pin(deps.store.fold_counts(10_000))),
    told(Duration::ZERO, "publish again", |deps| Box::pin(republish(deps)), show_backlogs),
    each(QUARANTINE_EVERY, "tend the quarantine", |deps, rules| Box::pin(tend_quarantine(deps, rules))),
    each(UNSERVED_EVERY, "wake what is not held", |deps, _| Box::pin(announced(deps, deps.store.wake_unheld(CHUNK)))),
    each(NET_EVERY, "wake what has no open child", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_childless(CHUNK)))
    }),
    each(UNSERVED_EVERY, "wake what is not blocked", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_unblocked(CHUNK as i32)))
    }),
    each_tick("tend model endpoints", |deps, _| Box::pin(deps.health.tend())),
    told(WORKERS_EVERY, COUNT_WORKERS, |deps| Box::pin(count_workers(deps)), |_| ()),
    each(UNSERVED_EVERY, "park what nobody serves", |deps, _| Box::pin(park_unserved(deps))),
    each(TIDY_EVERY, "tidy", |deps, _| Box::pin(deps.store.tidy(WEEKS_AHEAD))),
    each(TIDY_EVERY, "tidy slots and notes", |deps, _| {
        Box::pin(async {
            deps.store.tidy_slots().await?;
            deps.store.tidy_suspect_notes().await
        })
    }),
    each(KEYS_EVERY, "forget idempotency keys", |deps, _| Box::pin(forget_idempotency_keys(deps))),
    each(SERVE_KEYS_EVERY, "forget serve keys", |deps, _| {
        Box::pin(async { deps.store.forget_serve_keys(KEEP_SERVE_KEYS).await.map(drop) })
    }),
    told(ALARMS_EVERY, "count what waits", |deps| Box::pin(count_waiting(deps)), show_waiting),
    told(ALARMS_EVERY, "look for alarms", |deps| Box::pin(look_for_alarms(deps)), show_alarms),
];

/// Names and periods of the duties, for workers that look every `tick`.
pub(super) fn asked(tick: Duration) -> [(&'static str, Duration); DUTIES.len()] {
    DUTIES.map(|duty| (duty.name, between(duty.every.max(tick), tick)))
}

/// Runs every due duty that no other worker has taken; a failed duty does not stop the others.
pub(super) async fn sweep_once(
    deps: &Deps,
    rules: &QuarantineRules,
    asked: &[(&'static str, Duration)],
) -> Result<DutiesRun, StoreError> {
    let looked = deps.store.take_duties(asked).await?;
    let (mut done, mut failures) = (Vec::new(), 0);
    for (duty, &(name, period)) in DUTIES.iter().zip(asked) {
        let Some(found) = looked.iter().find(|found| found.name == name) else { continue };
        let told = match (found.taken_at, &duty.work) {
            (None, _) => Ok(None),
            (Some(_), Work::Do(run)) => run(deps, rules).await.map(|()| None),
            (Some(_), Work::Tell(count, _)) => count(deps).await.map(Some),
        };
        let told = told.unwrap_or_else(|error| {
            failed(name, &error);
            failures += 1;
            None
        });
        if let (Work::Tell(_, show), Some(told)) = (&duty.work, told.as_ref().or(found.told.as_ref())) {
            show(told);
        }
        let finished = |taken_at: DateTime<Utc>| DoneDuty { name, taken_at, period, told };
        done.extend(found.taken_at.map(finished));
    }
    if !done.is_empty() {
        deps.store.finish_duties(&done).await?;
    }
    Ok(DutiesRun { ran: done.iter().map(|duty| duty.name).collect(), failures })
}

/// Announces the executions woken by a duty of one statement.
async fn announced(
    deps: &Deps,
    woken: impl Future<Output = Result<Vec<Runnable>, StoreError>>,
) -> Result<(), StoreError> {
    announce(deps, &woken.await?);
    Ok(())
}

async fn wake_due(deps: &Deps) -> Result<(), StoreError> {
    for _ in 0..CHUNKS {
        let woken = deps.store.wake_due(CHUNK).await?;
        announce(deps, &woken);
        if (woken.len() as i64) < CHUNK {
            break;
        }
    }
    Ok(())
}

async fn end_overdue(deps: &Deps) -> Result<(), StoreError> {
    look(deps, &deps.store.end_overdue(CHUNK).await?);
    Ok(())
}

/// Ends overdue executions that their own worker does not end, if that worker's renewals are steady.
async fn end_neglected(deps: &Deps) -> Result<(), StoreError> {
    let neglected = deps.store.neglected(CHUNK, OVERDUE_GRACE, STEADY).await?;
    look(deps, &deps.store.end_held(&neglected, OVERDUE_GRACE).await?);
    Ok(())
}

fn look(deps: &Deps, ended: &[ExecutionId]) {
    deps.publisher.look(ended.iter().map(|id| id.0));
}

async fn cancel_descendants(deps: &Deps) -> Result<(), StoreError> {
    for _ in 0..CHUNKS {
        // Each pass reaches one level of a tree.
        let cancelled = deps.store.cancel_descendants(CHUNK).await?;
        deps.publisher.look(cancelled.iter().map(|id| id.0));
        if cancelled.is_empty() {
            break;
        }
    }
    Ok(())
}

async fn forget_idempotency_keys(deps: &Deps) -> Result<(), StoreError> {
    for _ in 0..KEYS_PORTIONS {
        if deps.store.forget_idempotency_keys(KEEP_KEYS, KEYS_PORTION).await? < KEYS_PORTION.unsigned_abs() {
            break;
        }
    }
    Ok(())
}

async fn park_unserved(deps: &Deps) -> Result<(), StoreError> {
    for (queue, serve_key) in deps.store.unserved().await? {
        let parked = deps.store.park_unserved((&queue, &serve_key), UNSERVED_GRACE, CHUNK).await?;
        if parked > 0 {
            tracing::warn!(queue.name = queue, serve_key, parked, "no live worker serves these executions");
        }
    }
    Ok(())
}

async fn count_workers(deps: &Deps) -> Result<Value, StoreError> {
    Ok(json!({ "live": deps.store.count_live_workers().await? }))
}

async fn count_waiting(deps: &Deps) -> Result<Value, StoreError> {
    let counts = deps.store.waiting().await?;
    Ok(counts.into_iter().map(|(reason, count)| (reason.as_str().to_owned(), json!(count))).collect())
}

fn show_waiting(told: &Value) {
    for reason in WaitReason::ALL {
        if let Some(count) = told[reason.as_str()].as_u64() {
            metrics::executions_waiting(*reason, count);
        }
    }
}

async fn look_for_alarms(deps: &Deps) -> Result<Value, StoreError> {
    let alarms = deps.store.alarms().await?;
    if !alarms.sees_all_sessions {
        static SAID: std::sync::Once = std::sync::Once::new();
        SAID.call_once(|| {
            tracing::warn!("snapshots of other roles are not seen: grant pg_read_all_stats to the role of Longhaul");
        });
    }
    if alarms.default_partition_rows > 0 {
        tracing::error!(rows = alarms.default_partition_rows, "history rows fell outside the partitions made ahead");
    }
    Ok(json!([alarms.oldest_snapshot.as_secs_f64(), alarms.sees_all_sessions]))
}

fn show_alarms(told: &Value) {
    let age = told[0].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    metrics::oldest_snapshot(age.unwrap_or_default(), told[1].as_bool().unwrap_or_default());
}

pub(super) fn rules(of: &QuarantineConfig) -> QuarantineRules {
    QuarantineRules {
        auto_release: of.auto_release,
        hold_after: of.hold_after.into(),
        hold_window: of.hold_window,
        release_per_minute: of.release_per_minute.into(),
    }
}

async fn tend_quarantine(deps: &Deps, rules: &QuarantineRules) -> Result<(), StoreError> {
    let tended = deps.store.tend_quarantine(rules).await?;
    announce(deps, &tended.runnable);
    for released in &tended.runnable {
        tracing::info!(execution.id = %released.id, "a quarantined execution is tried again");
    }
    for canary in &tended.passed {
        tracing::info!(execution.id = %canary, "a canary ended without killing its worker; the rest of its group follows");
    }
    for definition in &tended.held {
        tracing::warn!(definition.key = definition, "too many executions killed their workers; new ones are held back");
    }
    Ok(())
}

/// Publishes wake-ups and event hints for runnable executions.
pub(crate) fn announce(deps: &Deps, woken: &[Runnable]) {
    deps.publisher.look(woken.iter().map(|one| one.id.0));
    for one in woken {
        deps.publisher.wake(&one.queue, one.id, Some(WaitReason::Worker));
    }
}

/// Tops up the wake-ups of every queue with runnable executions, and returns the depths.
async fn republish(deps: &Deps) -> Result<Value, StoreError> {
    let heads = deps.store.queue_heads(HEAD_CAP).await?;
    for head in &heads {
        if let Ok(queue) = QueueName::new(&head.queue) {
            deps.publisher.republish(&queue, usize::try_from(head.runnable).unwrap_or_default()).await;
        }
    }
    Ok(heads.iter().map(|head| json!([head.queue, head.runnable, head.oldest.as_secs_f64()])).collect())
}

fn show_backlogs(told: &Value) {
    let backlog = |head: &Value| {
        Some(QueueBacklog {
            queue: head[0].as_str()?.to_owned(),
            due: head[1].as_u64()?,
            oldest: Duration::try_from_secs_f64(head[2].as_f64()?).ok()?,
        })
    };
    let backlogs: Vec<QueueBacklog> = told.as_array().into_iter().flatten().filter_map(backlog).collect();
    metrics::queue_backlogs(&backlogs);
}

/// Exchanges the tenants' usage with the other workers.
pub(crate) async fn exchange_usage(deps: Arc<Deps>) {
    let mut tick = ticks(EXCHANGE_EVERY);
    loop {
        tick.tick().await;
        if let Err(error) = deps.store.exchange_usage(&deps.shares).await {
            tracing::warn!(error = %error, "the use of tenants could not be exchanged");
        }
    }
}

/// Compares this worker's leases in the database with those in memory: releases unknown leases and passes on
/// cancels (core-rules 1).
pub(crate) async fn reconcile(
    deps: Arc<Deps>,
    writer: LeaseWriter,
    held: Arc<HeldLeases>,
    lease: Arc<WorkerLease>,
    every: Duration,
) {
    let mut tick = ticks(every);
    loop {
        tick.tick().await;
        let leases = match deps.store.leases_of(writer.worker(), CLAIM_GRACE).await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(error = %error, "reconciliation failed");
                continue;
            }
        };
        metrics::attempts_running(held.len());
        // After an outage, attempts write their results first: their batch is repeated soon after the server
        // returns.
        if lease.steady_for() >= STEADY {
            end_own(&deps, &leases).await;
        }
        for lease in leases {
            match held.get(lease.id, lease.token) {
                Some(control) if lease.cancel_requested => control.interrupt(Interrupt::Cancelled),
                Some(_) => {}
                None if lease.is_settled && held.give_up(lease.id, lease.token) => {
                    metrics::unheld_lease();
                    tracing::warn!(execution.id = %lease.id, "a lease nobody holds is handed back");
                    let conclusion = Conclusion::Release { drained: false };
                    let (id, token, attempt) = (lease.id, lease.token, lease.attempt);
                    let end = LeaseEnd { id, token, attempt, conclusion, write: None };
                    match writer.conclude(end).await {
                        Ok(concluded) => {
                            announce(&deps, &concluded.woken);
                            deps.publisher.wake(&concluded.queue, lease.id, concluded.wait_reason);
                        }
                        Err(error) => {
                            tracing::warn!(execution.id = %lease.id, error = %error, "a lease nobody holds was not handed back");
                        }
                    }
                }
                None => {}
            }
        }
    }
}

/// Ends overdue executions of this worker.
async fn end_own(deps: &Deps, leases: &[HeldLease]) {
    let is_overdue = |lease: &&HeldLease| lease.overdue > OVERDUE_GRACE;
    let overdue: Vec<ExecutionId> = leases.iter().filter(is_overdue).map(|lease| lease.id).collect();
    match deps.store.end_held(&overdue, OVERDUE_GRACE).await {
        // Their attempts lose the lease at their next write.
        Ok(ended) => look(deps, &ended),
        Err(error) => tracing::warn!(error = %error, "overdue executions of this worker were not ended"),
    }
}

/// Loads the serve keys of submitted executions, and publishes those this worker satisfies.
pub(crate) async fn refresh_serves(deps: Arc<Deps>, serves: Arc<Serves>, worker: WorkerId) {
    let mut tick = ticks(UNSERVED_EVERY);
    loop {
        tick.tick().await;
        if let Err(error) = serves.refresh_and_publish(&deps.store, worker).await {
            tracing::warn!(error = %error, "serve keys could not be refreshed");
        }
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut tick = interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}
