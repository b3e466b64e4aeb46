//! The sweep: duties that the first worker to take them, when they are due, runs for the fleet (core-rules 23,
//! docs/adr/0038-one-sweep.md). A duty that runs twice does no harm, because the store skips locked rows.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use longhaul_shared::config::{QuarantineConfig, WorkerConfig};
use longhaul_store::{
    StoreError, ends::Line, fleet::duties::DoneDuty, providers::breakers::COUNT_WORKERS, quarantine::QuarantineRules,
};
use serde_json::Value;

use super::super::reactions;
use super::{
    duties::{
        admit_projects, announced, cancel_descendants, count_waiting, count_workers, end_neglected, end_overdue,
        forget_idempotency_keys, forget_old_episodes, look_for_alarms, park_unserved, republish, show_alarms,
        show_backlogs, show_waiting, tend_quarantine, update_memory, wake_due,
    },
    pace::{CHUNK, between, failed, ticks},
    schedules::advance_schedules,
};
use crate::deps::Deps;

/// Period of the search for overdue executions whose own worker does not end them. It reads all held leases.
const WEDGED_EVERY: Duration = Duration::from_secs(60);
/// Period of the fallbacks for lost wakes that scan all waiting executions or slots.
const NET_EVERY: Duration = Duration::from_secs(30);
/// Period of the wake of executions whose serve key a worker now serves.
const SERVED_EVERY: Duration = Duration::from_secs(2);
/// Period of the quarantine duty, which notices a new build or the end of a canary.
const QUARANTINE_EVERY: Duration = Duration::from_secs(2);
/// Period of duties that make up for what a process that died left undone.
const FALLBACK_EVERY: Duration = Duration::from_secs(5);
/// Period of the fallback for lost wakes of decided requests, and the age up to which it looks for decisions:
/// longer than any pause of the sweep. An older one wakes at its `wait_until`, which is never later than the next
/// expiry.
const DECIDED_EVERY: Duration = Duration::from_secs(10);
const DECIDED_WINDOW: Duration = Duration::from_secs(3_600);
/// Maximum age of the count of live workers, by which limits are divided when Redis is down.
const WORKERS_EVERY: Duration = Duration::from_secs(5);
const TIDY_EVERY: Duration = Duration::from_secs(600);
const ALARMS_EVERY: Duration = Duration::from_secs(30);
/// History partitions made ahead, in weeks.
const WEEKS_AHEAD: i32 = 4;
/// Period of the deletion of idempotency keys.
const KEYS_EVERY: Duration = Duration::from_secs(10);
/// Period of the removal of expired uploads and of files that nothing names.
const FILES_EVERY: Duration = Duration::from_secs(10);
/// Period of the look for what memory is to take, and for what it has to forget.
const MEMORY_EVERY: Duration = Duration::from_secs(1);
/// Period and portion of the deletion of old firings of schedules.
const FIRINGS_EVERY: Duration = Duration::from_secs(10);
const FIRINGS_PORTION: i64 = 5_000;
const SERVE_KEYS_EVERY: Duration = Duration::from_secs(3_600);
/// Time a serve key is kept after the last submit with it: much longer than an API process caches that it stored
/// the key.
const KEEP_SERVE_KEYS: Duration = Duration::from_secs(24 * 3_600);

/// Takes the due duties of the sweep and runs them, every tick.
pub(crate) async fn sweep(deps: Arc<Deps>, config: WorkerConfig) {
    let mut tick = ticks(config.sweep_tick);
    let (rules, asked) = (rules(&config.quarantine), asked(config.sweep_tick));
    loop {
        tick.tick().await;
        if let Err(error) = deps.store.trouble().on_one_server(sweep_once(&deps, &rules, &asked)).await {
            failed("take duties", &error);
        }
    }
}

/// Duties that one look took and ran.
#[derive(Debug, Default)]
pub(in crate::runtime) struct DutiesRun {
    pub(in crate::runtime) ran: Vec<&'static str>,
    pub(in crate::runtime) failures: u64,
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
const DUTIES: [Duty; 36] = [
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
    each_tick("advance schedules", |deps, _| Box::pin(advance_schedules(deps))),
    each_tick("cancel descendants", |deps, _| Box::pin(cancel_descendants(deps))),
    each_tick("react to ends", |deps, _| Box::pin(reactions::react_to_ends(deps, Line::First))),
    each_tick("react again", |deps, _| Box::pin(reactions::react_to_ends(deps, Line::Again))),
    each_tick("end late projects", |deps, _| Box::pin(deps.store.signal_late_projects(CHUNK))),
    each(FALLBACK_EVERY, "admit projects", |deps, _| Box::pin(admit_projects(deps))),
    each_tick("fold budgets", |deps, _| Box::pin(announced(deps, deps.store.fold_budgets(CHUNK)))),
    each(FALLBACK_EVERY, "clear leaked slots", |deps, _| Box::pin(deps.store.clear_leaked_slots())),
    each_tick("sweep slots", |deps, _| Box::pin(announced(deps, deps.store.sweep_slots(CHUNK)))),
    each_tick("fold counts", |deps, _| Box::pin(deps.store.fold_counts(10_000))),
    told(Duration::ZERO, "publish again", |deps| Box::pin(republish(deps)), show_backlogs),
    each(QUARANTINE_EVERY, "tend the quarantine", |deps, rules| Box::pin(tend_quarantine(deps, rules))),
    each(FALLBACK_EVERY, "wake what is not held", |deps, _| Box::pin(announced(deps, deps.store.wake_unheld(CHUNK)))),
    each(NET_EVERY, "wake what has no open child", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_childless(CHUNK)))
    }),
    each(FALLBACK_EVERY, "wake what is not blocked", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_unblocked(CHUNK as i32)))
    }),
    each_tick("tend model endpoints", |deps, _| Box::pin(deps.health.tend())),
    told(WORKERS_EVERY, COUNT_WORKERS, |deps| Box::pin(count_workers(deps)), |_| ()),
    each(FALLBACK_EVERY, "park what nobody serves", |deps, _| Box::pin(park_unserved(deps))),
    each(TIDY_EVERY, "tidy", |deps, _| Box::pin(deps.store.tidy(WEEKS_AHEAD))),
    each(TIDY_EVERY, "tidy slots and notes", |deps, _| {
        Box::pin(async {
            deps.store.tidy_slots().await?;
            deps.store.tidy_suspect_notes().await
        })
    }),
    each(KEYS_EVERY, "forget idempotency keys", |deps, _| Box::pin(forget_idempotency_keys(deps))),
    each(FILES_EVERY, "remove files", |deps, _| Box::pin(deps.agent.files.sweep())),
    each(MEMORY_EVERY, "update memory", |deps, _| Box::pin(update_memory(deps))),
    each(MEMORY_EVERY, "forget old episodes", |deps, _| Box::pin(forget_old_episodes(deps))),
    each(MEMORY_EVERY, "erase void copies", |deps, _| Box::pin(deps.store.erase_void_copies())),
    each(FIRINGS_EVERY, "forget firings", |deps, _| {
        Box::pin(async { deps.store.forget_firings(FIRINGS_PORTION).await.map(drop) })
    }),
    each(SERVE_KEYS_EVERY, "forget serve keys", |deps, _| {
        Box::pin(async { deps.store.forget_serve_keys(KEEP_SERVE_KEYS).await.map(drop) })
    }),
    told(ALARMS_EVERY, "count reactions", |deps| Box::pin(reactions::count_backlogs(deps)), reactions::show_backlogs),
    told(ALARMS_EVERY, "count what waits", |deps| Box::pin(count_waiting(deps)), show_waiting),
    told(ALARMS_EVERY, "look for alarms", |deps| Box::pin(look_for_alarms(deps)), show_alarms),
];

/// Names and periods of the duties, for workers that look every `tick`.
pub(in crate::runtime) fn asked(tick: Duration) -> [(&'static str, Duration); DUTIES.len()] {
    DUTIES.map(|duty| (duty.name, between(duty.every.max(tick), tick)))
}

/// Runs every due duty that no other worker has taken; a failed duty does not stop the others.
pub(in crate::runtime) async fn sweep_once(
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

pub(in crate::runtime) fn rules(of: &QuarantineConfig) -> QuarantineRules {
    QuarantineRules {
        auto_release: of.auto_release,
        hold_after: of.hold_after.into(),
        hold_window: of.hold_window,
        release_per_minute: of.release_per_minute.into(),
    }
}
