//! The sweep: duties that the first worker to take them, when they are due, runs for the fleet (core-rules 23,
//! docs/design/sweep.md). `sweeper.rs` runs them side by side. A duty that runs twice does no harm, because the
//! store skips locked rows. Each reads in proportion to what it changes (core-rules 28): those that make up for a lost
//! wake, and have to look at all that waits, walk over it, a portion at a time.

use std::{sync::Arc, time::Duration};

use longhaul_config::{QuarantineConfig, WorkerConfig};
use longhaul_store::{ends::Line, providers::breakers::COUNT_WORKERS, quarantine::QuarantineRules};
use serde_json::Value;

use super::super::reactions;
use super::{
    duties::{
        admit_projects, announced, cancel_descendants, clear_leaked_slots, count_waiting, count_workers, end_neglected,
        end_overdue, erase_unstored, fold_budgets, forget_idempotency_keys, forget_old_episodes, forget_old_usage,
        look_for_alarms, park_unserved, republish, show_alarms, show_backlogs, show_waiting, sweep_slots,
        tend_quarantine, update_memory, wake_childless, wake_decided, wake_due, wake_unblocked,
    },
    pace::{CHUNK, failed, ticks},
    schedules::advance_schedules,
    sweeper::{Count, Duty, Run, Sweeper, Work},
};
use crate::deps::Deps;

/// Period of the search for overdue executions whose own worker does not end them.
const WEDGED_EVERY: Duration = Duration::from_secs(60);
/// Period of the wake of executions whose serve key a worker now serves.
const SERVED_EVERY: Duration = Duration::from_secs(2);
/// Period of the quarantine duty, which notices a new build or the end of a canary.
const QUARANTINE_EVERY: Duration = Duration::from_secs(2);
/// Period of duties that make up for what a process that died left undone.
const FALLBACK_EVERY: Duration = Duration::from_secs(5);
/// Period of the fallback for lost wakes of decided requests.
const DECIDED_EVERY: Duration = Duration::from_secs(10);
/// Maximum age of the count of live workers, by which limits are divided when Redis is down.
const WORKERS_EVERY: Duration = Duration::from_secs(5);
const TIDY_EVERY: Duration = Duration::from_secs(600);
const ALARMS_EVERY: Duration = Duration::from_secs(30);
/// Period of the count of what waits, one part of the table at a time.
const COUNTED_EVERY: Duration = Duration::from_secs(2);
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
    let mut sweeper = sweeper(&deps, &config);
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let looked = deps.store.trouble().clone().on_one_server(sweeper.look()).await;
                looked.unwrap_or_else(|error| failed("take duties", &error));
            }
            () = sweeper.ended() => {}
        }
    }
}

pub(in crate::runtime) fn sweeper(deps: &Arc<Deps>, config: &WorkerConfig) -> Sweeper {
    Sweeper::new(deps.clone(), rules(&config.quarantine), &DUTIES, config.sweep_tick)
}

/// A duty that something waits for by the clock: of each tick, and behind no other.
const fn timer(name: &'static str, run: Run) -> Duty {
    Duty { name, every: Duration::ZERO, work: Work::Do(run), is_timer: true }
}

const fn each_tick(name: &'static str, run: Run) -> Duty {
    each(Duration::ZERO, name, run)
}

const fn each(every: Duration, name: &'static str, run: Run) -> Duty {
    Duty { name, every, work: Work::Do(run), is_timer: false }
}

const fn walk(every: Duration, name: &'static str, look: Count) -> Duty {
    Duty { name, every, work: Work::Walk(look), is_timer: false }
}

const fn told(every: Duration, name: &'static str, count: Count, show: fn(&Value)) -> Duty {
    Duty { name, every, work: Work::Tell(count, show), is_timer: false }
}

/// Duties of the sweep.
static DUTIES: [Duty; 39] = [
    // Before the waits of their executions, which end at the same time: no reader should find an overdue request
    // still waiting.
    timer("expire requests", |deps, _| Box::pin(announced(deps, deps.store.expire_requests(CHUNK, None)))),
    timer("wake due executions", |deps, _| Box::pin(wake_due(deps))),
    timer("end overdue executions", |deps, _| Box::pin(end_overdue(deps))),
    each_tick("advance schedules", |deps, _| Box::pin(advance_schedules(deps))),
    each(SERVED_EVERY, "wake served executions", |deps, _| Box::pin(announced(deps, deps.store.wake_served(CHUNK)))),
    each(WEDGED_EVERY, "end overdue held executions", |deps, _| Box::pin(end_neglected(deps))),
    each_tick("cancel descendants", |deps, _| Box::pin(cancel_descendants(deps))),
    timer("react to ends", |deps, _| Box::pin(reactions::react_to_ends(deps, Line::First))),
    each_tick("retry reactions", |deps, _| Box::pin(reactions::react_to_ends(deps, Line::Again))),
    each_tick("end late projects", |deps, _| Box::pin(deps.store.signal_late_projects(CHUNK))),
    walk(FALLBACK_EVERY, "admit projects", |deps, after| Box::pin(admit_projects(deps, after))),
    walk(Duration::ZERO, "fold budgets", |deps, after| Box::pin(fold_budgets(deps, after))),
    walk(Duration::ZERO, "clear leaked slots", |deps, after| Box::pin(clear_leaked_slots(deps, after))),
    walk(Duration::ZERO, "sweep slots", |deps, after| Box::pin(sweep_slots(deps, after))),
    each_tick("fold counts", |deps, _| Box::pin(deps.store.fold_counts(10_000))),
    told(Duration::ZERO, "republish wake-ups", |deps, _| Box::pin(republish(deps)), show_backlogs),
    each(QUARANTINE_EVERY, "update the quarantine", |deps, rules| Box::pin(tend_quarantine(deps, rules))),
    walk(DECIDED_EVERY, "wake decided executions", |deps, after| Box::pin(wake_decided(deps, after))),
    each(FALLBACK_EVERY, "wake released executions", |deps, _| {
        Box::pin(announced(deps, deps.store.wake_unheld(CHUNK)))
    }),
    walk(Duration::ZERO, "wake parents without open children", |deps, after| Box::pin(wake_childless(deps, after))),
    walk(FALLBACK_EVERY, "wake unblocked executions", |deps, after| Box::pin(wake_unblocked(deps, after))),
    each_tick("update model endpoints", |deps, _| Box::pin(deps.health.tend())),
    told(WORKERS_EVERY, COUNT_WORKERS, |deps, _| Box::pin(count_workers(deps)), |_| ()),
    each(FALLBACK_EVERY, "park unserved executions", |deps, _| Box::pin(park_unserved(deps))),
    each(TIDY_EVERY, "maintain partitions and workers", |deps, _| Box::pin(deps.store.tidy(WEEKS_AHEAD))),
    each(TIDY_EVERY, "delete idle slots and old notes", |deps, _| {
        Box::pin(async {
            deps.store.tidy_slots().await?;
            deps.store.tidy_suspect_notes().await
        })
    }),
    walk(FALLBACK_EVERY, "forget old usage", |deps, after| Box::pin(forget_old_usage(deps, after))),
    each(KEYS_EVERY, "forget idempotency keys", |deps, _| Box::pin(forget_idempotency_keys(deps))),
    each(FILES_EVERY, "remove files", |deps, _| Box::pin(deps.agent.files.sweep())),
    each(MEMORY_EVERY, "update memory", |deps, _| Box::pin(update_memory(deps))),
    each(MEMORY_EVERY, "forget old episodes", |deps, _| Box::pin(forget_old_episodes(deps))),
    each(MEMORY_EVERY, "erase void copies", |deps, _| Box::pin(deps.store.erase_void_copies())),
    each(FALLBACK_EVERY, "end overdue runs", |deps, _| {
        Box::pin(async { deps.store.end_overdue_runs(CHUNK).await.map(drop) })
    }),
    each(FALLBACK_EVERY, "erase unstored executions", |deps, _| Box::pin(erase_unstored(deps))),
    each(FIRINGS_EVERY, "forget firings", |deps, _| {
        Box::pin(async { deps.store.forget_firings(FIRINGS_PORTION).await.map(drop) })
    }),
    each(SERVE_KEYS_EVERY, "forget serve keys", |deps, _| {
        Box::pin(async { deps.store.forget_serve_keys(KEEP_SERVE_KEYS).await.map(drop) })
    }),
    told(
        ALARMS_EVERY,
        "count reactions",
        |deps, _| Box::pin(reactions::count_backlogs(deps)),
        reactions::show_backlogs,
    ),
    told(COUNTED_EVERY, "count waiting executions", |deps, before| Box::pin(count_waiting(deps, before)), show_waiting),
    told(ALARMS_EVERY, "check for alarms", |deps, _| Box::pin(look_for_alarms(deps)), show_alarms),
];

fn rules(of: &QuarantineConfig) -> QuarantineRules {
    QuarantineRules {
        auto_release: of.auto_release,
        hold_after: of.hold_after.into(),
        hold_window: of.hold_window,
        release_per_minute: of.release_per_minute.into(),
    }
}
