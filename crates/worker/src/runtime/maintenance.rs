//! What every worker does for the whole fleet: bury dead workers, take back what they held, wake what is due, publish again what
//! has no wake-up. All of it may run on many workers at once; the store shares the work by skipping locked rows.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use longhaul_sdk::Interrupt;
use longhaul_shared::{
    config::{QuarantineConfig, WorkerConfig},
    domain::{WaitReason, WorkerId},
    queue::QueueName,
    store::{
        StoreError,
        expiry::{KEEP_KEYS, KEYS_PORTION},
        maintenance::Runnable,
        outcomes::{Conclusion, LeaseEnd, LeaseWriter},
        quarantine::QuarantineRules,
    },
    telemetry::metrics::{self, QueueBacklog},
};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    lease::{Held, WorkerLease},
    pool::Serves,
};
use crate::{deps::Deps, wake};

/// Executions moved by one statement.
const CHUNK: i64 = 500;
/// Chunks moved in one tick; the rest waits for the next, so that no tick starves the other duties.
const CHUNKS: usize = 20;
/// How long a worker may let `active_until` pass before the sweep ends the execution for it.
const OVERDUE_GRACE: Duration = Duration::from_secs(15);
/// How long an execution may be runnable without any live worker for it before it waits with `no_worker`.
const UNSERVED_GRACE: Duration = Duration::from_secs(10);
/// A claim whose reply has not arrived by now never will: two seconds more than one is waited for, so that one that comes in late
/// is not handed back while it is being taken note of.
const CLAIM_GRACE: Duration = Duration::from_secs(7);
/// How soon a new build, and the end of a canary, are noticed.
const QUARANTINE_EVERY: Duration = Duration::from_secs(2);
const UNSERVED_EVERY: Duration = Duration::from_secs(5);
/// The net below the wakes of decisions, and how far back it looks: longer than any pause of the sweep. What is older wakes at its
/// `wait_until`, which is never later than the next expiry.
const DECIDED_EVERY: Duration = Duration::from_secs(10);
const DECIDED_WINDOW: Duration = Duration::from_secs(3_600);
/// How old the shares of tenants may be that workers go by.
const EXCHANGE_EVERY: Duration = Duration::from_secs(2);
const TIDY_EVERY: Duration = Duration::from_secs(600);
const ALARMS_EVERY: Duration = Duration::from_secs(30);
/// History partitions made ahead, in weeks.
const WEEKS_AHEAD: i32 = 4;
/// How often idempotency keys are deleted, and the most portions a time.
const KEYS_EVERY: Duration = Duration::from_secs(10);
const KEYS_PORTIONS: usize = 100;
const SERVE_KEYS_EVERY: Duration = Duration::from_secs(3_600);
/// How long a serve key outlives the last submit with it: much longer than an API process remembers that it put one.
const KEEP_SERVE_KEYS: Duration = Duration::from_secs(24 * 3_600);
/// Runnable executions counted per queue for metrics and wake-ups.
const HEAD_CAP: i64 = 1_000;

/// Buries and reaps, every tick, while this worker's own renewals prove that Postgres is well.
pub(crate) async fn reap(deps: Arc<Deps>, lease: Arc<WorkerLease>, config: WorkerConfig) {
    let mut tick = ticks(config.reaper_tick);
    loop {
        tick.tick().await;
        if lease.steady_for() < config.lease {
            continue;
        }
        if let Err(error) = bury_and_reap(&deps, config.lease).await {
            // An error says that Postgres may be in trouble: nobody is declared dead until renewals were steady again.
            lease.faltered();
            tracing::warn!(error = %error, "reaper failed");
        }
    }
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
                None => wake(&deps.publisher, &one.queue, one.id, Some(WaitReason::Worker)),
            }
        }
        if !reaped.is_empty() {
            // What they held is free.
            announce(deps, &deps.store.sweep_slots(CHUNK).await?);
        }
        if (reaped.len() as i64) < CHUNK {
            break;
        }
    }
    Ok(())
}

/// Wakes, ends what is overdue, publishes again, folds counts; every tick.
pub(crate) async fn sweep(deps: Arc<Deps>, config: WorkerConfig) {
    let mut tick = ticks(config.sweep_tick);
    let mut due_at = [Instant::now(); DUTIES.len()];
    let rules = rules(&config.quarantine);
    loop {
        tick.tick().await;
        sweep_once(&deps, &rules, &mut due_at).await;
    }
}

type Run = for<'a> fn(&'a Deps, &'a QuarantineRules) -> BoxFuture<'a, Result<(), StoreError>>;

/// One duty of the sweep.
struct Duty {
    name: &'static str,
    /// How rarely; with none, every tick.
    every: Duration,
    run: Run,
}

const fn each_tick(name: &'static str, run: Run) -> Duty {
    Duty { name, every: Duration::ZERO, run }
}

const fn each(every: Duration, name: &'static str, run: Run) -> Duty {
    Duty { name, every, run }
}

/// What the sweep does, in this order.
const DUTIES: [Duty; 21] = [
    // Before the waits of their executions, which end at the same time: nobody shall find a request that is overdue and waits.
    each_tick("expire requests", |deps, _| Box::pin(announced(deps, deps.store.expire_requests(CHUNK, None)))),
    each(DECIDED_EVERY, "wake what is decided", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_decided(CHUNK, DECIDED_WINDOW)))
    }),
    each_tick("wake what is due", |deps, _| Box::pin(wake_due(deps))),
    each_tick("wake what is served", |deps, _| Box::pin(announced(deps, deps.store.wake_served(CHUNK)))),
    each_tick("end what is overdue", |deps, _| Box::pin(end_overdue(deps))),
    each_tick("cancel descendants", |deps, _| Box::pin(cancel_descendants(deps))),
    each_tick("fold budgets", |deps, _| Box::pin(announced(deps, deps.store.fold_budgets(CHUNK)))),
    each_tick("sweep slots", |deps, _| Box::pin(announced(deps, deps.store.sweep_slots(CHUNK)))),
    each_tick("fold counts", |deps, _| Box::pin(deps.store.fold_counts(10_000))),
    each_tick("publish again", |deps, _| Box::pin(republish(deps))),
    each(QUARANTINE_EVERY, "tend the quarantine", |deps, rules| Box::pin(tend_quarantine(deps, rules))),
    each(UNSERVED_EVERY, "wake what is not held", |deps, _| Box::pin(announced(deps, deps.store.wake_unheld(CHUNK)))),
    each(UNSERVED_EVERY, "wake what has no open child", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_childless(CHUNK)))
    }),
    each(UNSERVED_EVERY, "wake what is not blocked", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_unblocked(CHUNK as i32)))
    }),
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
    each(ALARMS_EVERY, "count what waits", |deps, _| Box::pin(count_waiting(deps))),
    each(ALARMS_EVERY, "look for alarms", |deps, _| Box::pin(look_for_alarms(deps))),
];

/// Every duty that is due; one that fails keeps none of the others from its turn.
async fn sweep_once(deps: &Deps, rules: &QuarantineRules, due_at: &mut [Instant; DUTIES.len()]) {
    for (duty, due_at) in DUTIES.iter().zip(due_at) {
        if *due_at > Instant::now() {
            continue;
        }
        *due_at = Instant::now() + duty.every;
        if let Err(error) = (duty.run)(deps, rules).await {
            tracing::warn!(duty = duty.name, error = %error, "a duty of the sweep failed");
        }
    }
}

/// Announces what a duty of one statement woke.
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
    let overdue = deps.store.end_overdue(CHUNK, OVERDUE_GRACE).await?;
    deps.publisher.look(overdue.iter().map(|id| id.0));
    Ok(())
}

async fn cancel_descendants(deps: &Deps) -> Result<(), StoreError> {
    for _ in 0..CHUNKS {
        // One level of a tree after the other.
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

async fn count_waiting(deps: &Deps) -> Result<(), StoreError> {
    for (reason, count) in deps.store.waiting().await? {
        metrics::executions_waiting(reason, count);
    }
    Ok(())
}

async fn look_for_alarms(deps: &Deps) -> Result<(), StoreError> {
    let alarms = deps.store.alarms().await?;
    metrics::oldest_snapshot(alarms.oldest_snapshot, alarms.sees_all_sessions);
    if !alarms.sees_all_sessions {
        static SAID: std::sync::Once = std::sync::Once::new();
        SAID.call_once(|| {
            tracing::warn!("snapshots of other roles are not seen: grant pg_read_all_stats to the role of Longhaul");
        });
    }
    if alarms.default_partition_rows > 0 {
        tracing::error!(rows = alarms.default_partition_rows, "history rows fell outside the partitions made ahead");
    }
    Ok(())
}

fn rules(of: &QuarantineConfig) -> QuarantineRules {
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

/// Tells queues and observers what became runnable.
pub(crate) fn announce(deps: &Deps, woken: &[Runnable]) {
    deps.publisher.look(woken.iter().map(|one| one.id.0));
    for one in woken {
        wake(&deps.publisher, &one.queue, one.id, Some(WaitReason::Worker));
    }
}

/// Tops up the wake-ups of every queue that has work, and shows its depth.
async fn republish(deps: &Deps) -> Result<(), StoreError> {
    let heads = deps.store.queue_heads(HEAD_CAP).await?;
    let due = |runnable: i64| u64::try_from(runnable).unwrap_or_default();
    let backlogs: Vec<QueueBacklog> = heads
        .iter()
        .map(|head| QueueBacklog { queue: head.queue.clone(), due: due(head.runnable), oldest: head.oldest })
        .collect();
    metrics::queue_backlogs(&backlogs);
    for head in &heads {
        if let Ok(queue) = QueueName::new(&head.queue) {
            deps.publisher.republish(&queue, due(head.runnable) as usize).await;
        }
    }
    Ok(())
}

/// Tells the other workers what tenants used here, and learns what they used there.
pub(crate) async fn exchange_usage(deps: Arc<Deps>) {
    let mut tick = ticks(EXCHANGE_EVERY);
    loop {
        tick.tick().await;
        if let Err(error) = deps.store.exchange_usage(&deps.shares).await {
            tracing::warn!(error = %error, "the use of tenants could not be exchanged");
        }
    }
}

/// Compares what the database says this worker holds with what is in memory: hands back what is unknown, passes on cancels.
pub(crate) async fn reconcile(deps: Arc<Deps>, writer: LeaseWriter, held: Arc<Held>, every: Duration) {
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
        for lease in leases {
            match held.get(lease.id, lease.token) {
                Some(control) if lease.cancel_requested => control.interrupt(Interrupt::Cancelled),
                Some(_) => {}
                None if lease.is_settled && held.give_up(lease.id, lease.token) => {
                    metrics::unheld_lease();
                    tracing::warn!(execution.id = %lease.id, "a lease nobody holds is handed back");
                    let conclusion = Conclusion::Release { drained: false };
                    let end = LeaseEnd { id: lease.id, token: lease.token, attempt: lease.attempt, conclusion };
                    match writer.conclude(end).await {
                        Ok(concluded) => {
                            announce(&deps, &concluded.woken);
                            wake(&deps.publisher, &concluded.queue, lease.id, concluded.wait_reason);
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

/// Learns the serve keys that executions were submitted with, and publishes those this worker satisfies.
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
