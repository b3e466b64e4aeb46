//! The work of each duty of the sweep.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_domain::WaitReason;
use longhaul_queue::QueueName;
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::{
    StoreError,
    executions::expiry::{KEEP_KEYS, KEYS_PORTION},
    fleet::maintenance::Runnable,
    quarantine::QuarantineRules,
};
use longhaul_telemetry::metrics::{self, QueueBacklog};
use serde_json::{Value, json};
use uuid::Uuid;

use super::pace::{CHUNK, CHUNKS, OVERDUE_GRACE, STEADY};
use crate::deps::Deps;

/// Time an execution may be runnable without a live worker that serves it, before it waits with `no_worker`.
const UNSERVED_GRACE: Duration = Duration::from_secs(10);
/// Maximum portions of idempotency keys deleted at a time.
const KEYS_PORTIONS: usize = 100;
/// Maximum executions erased at a time: each is a transaction of its own.
const UNSTORED: i64 = 50;
/// Decisions that one look examines, and the age up to which the first look does so: longer than any pause of the
/// sweep. An older one wakes at its `wait_until`, which is never later than the next expiry.
const DECISIONS: i64 = 100;
const DECIDED_WINDOW: Duration = Duration::from_secs(3_600);
/// Runnable executions counted per queue for metrics and wake-ups.
const HEAD_CAP: i64 = 1_000;

/// Announces the executions woken by a duty of one statement.
pub(super) async fn announced(
    deps: &Deps,
    woken: impl Future<Output = Result<Vec<Runnable>, StoreError>>,
) -> Result<(), StoreError> {
    deps.publisher.runnable(&woken.await?);
    Ok(())
}

/// The last thing that the walk before looked at; `None` at its start.
fn id_of(after: &Value) -> Option<Uuid> {
    after.as_str().and_then(|id| id.parse().ok())
}

pub(super) async fn wake_decided(deps: &Deps, after: Value) -> Result<Value, StoreError> {
    let after = after.as_str().and_then(|time| time.parse::<DateTime<Utc>>().ok());
    let (woken, next) = deps.store.wake_decided(after, DECISIONS, DECIDED_WINDOW).await?;
    deps.publisher.runnable(&woken);
    Ok(json!(next))
}

pub(super) async fn fold_budgets(deps: &Deps, after: Value) -> Result<Value, StoreError> {
    let (woken, last) = deps.store.fold_budgets(id_of(&after), CHUNK).await?;
    deps.publisher.runnable(&woken);
    Ok(json!(last))
}

pub(super) async fn clear_leaked_slots(deps: &Deps, after: Value) -> Result<Value, StoreError> {
    Ok(json!(deps.store.clear_leaked_slots(id_of(&after)).await?))
}

pub(super) async fn sweep_slots(deps: &Deps, after: Value) -> Result<Value, StoreError> {
    let (woken, last) = deps.store.sweep_slots(after.as_str(), CHUNK).await?;
    deps.publisher.runnable(&woken);
    Ok(json!(last))
}

pub(super) async fn wake_childless(deps: &Deps, after: Value) -> Result<Value, StoreError> {
    let (woken, last) = deps.store.wake_childless(id_of(&after)).await?;
    deps.publisher.runnable(&woken);
    Ok(json!(last))
}

/// Wakes the waiters of healthy endpoints; walks over those that are in no line, and over the waits of what has ended.
pub(super) async fn wake_unblocked(deps: &Deps, after: Value) -> Result<Value, StoreError> {
    deps.publisher.runnable(&deps.store.wake_unblocked(CHUNK as i32).await?);
    let (woken, unlined) = deps.store.wake_unlined(id_of(&after["unlined"])).await?;
    deps.publisher.runnable(&woken);
    let ended = deps.store.forget_ended_waits(id_of(&after["ended"])).await?;
    Ok(json!({ "unlined": unlined, "ended": ended }))
}

pub(super) async fn forget_old_usage(deps: &Deps, part: Value) -> Result<Value, StoreError> {
    Ok(json!(deps.store.forget_old_usage(part.as_i64().unwrap_or_default()).await?))
}

pub(super) async fn wake_due(deps: &Deps) -> Result<(), StoreError> {
    for _ in 0..CHUNKS {
        let woken = deps.store.wake_due(CHUNK).await?;
        deps.publisher.runnable(&woken);
        if (woken.len() as i64) < CHUNK {
            break;
        }
    }
    Ok(())
}

pub(super) async fn end_overdue(deps: &Deps) -> Result<(), StoreError> {
    let ended = deps.store.end_overdue(CHUNK).await?;
    if !ended.is_empty() {
        deps.ended.send_replace(());
    }
    deps.publisher.look(ended.iter().copied());
    Ok(())
}

/// Ends overdue executions that their own worker does not end, if that worker's renewals are steady.
pub(super) async fn end_neglected(deps: &Deps) -> Result<(), StoreError> {
    let neglected = deps.store.neglected(CHUNK, OVERDUE_GRACE, STEADY).await?;
    deps.publisher.look(deps.store.end_held(&neglected, OVERDUE_GRACE).await?.iter().copied());
    Ok(())
}

pub(super) async fn cancel_descendants(deps: &Deps) -> Result<(), StoreError> {
    for _ in 0..CHUNKS {
        // Each pass reaches one level of a tree.
        let cancelled = deps.store.cancel_descendants(CHUNK).await?;
        deps.publisher.look(cancelled.iter().copied());
        if cancelled.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Lets approved projects run where there is a place, tenant by tenant, of the next tenants with a line.
pub(super) async fn admit_projects(deps: &Deps, after: Value) -> Result<Value, StoreError> {
    let mut failed = None;
    let (tenants, last) = deps.store.lines_with_room(id_of(&after), deps.max_running_projects).await?;
    for tenant in tenants {
        match deps.store.drive_line(tenant, deps.max_running_projects).await {
            Ok(started) => deps.publisher.runnable(&started),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(json!(last)), Err)
}

pub(super) async fn forget_idempotency_keys(deps: &Deps) -> Result<(), StoreError> {
    let most = KEYS_PORTION.unsigned_abs();
    for _ in 0..KEYS_PORTIONS {
        let keys = deps.store.forget_idempotency_keys(KEEP_KEYS, KEYS_PORTION).await?;
        let answers = deps.store.forget_kept_answers(KEEP_KEYS, KEYS_PORTION).await?;
        if keys < most && answers < most {
            break;
        }
    }
    Ok(())
}

/// Erases executions that are not stored, and what Redis keeps of their replies; without Redis that expires.
pub(super) async fn erase_unstored(deps: &Deps) -> Result<(), StoreError> {
    let erased = deps.store.erase_unstored(UNSTORED).await?;
    let erased: Vec<_> = erased.into_iter().map(|execution| (execution.id, execution.turns)).collect();
    if !erased.is_empty() {
        deps.publisher.forget_replies(&erased).await;
    }
    Ok(())
}

pub(super) async fn park_unserved(deps: &Deps) -> Result<(), StoreError> {
    for (queue, serve_key) in deps.store.unserved().await? {
        let parked = deps.store.park_unserved((&queue, &serve_key), UNSERVED_GRACE, CHUNK).await?;
        if parked > 0 {
            tracing::warn!(queue.name = queue, serve_key, parked, "no live worker serves these executions");
        }
    }
    Ok(())
}

/// Submits the executions that remember sessions and executions.
pub(super) async fn update_memory(deps: &Deps) -> Result<(), StoreError> {
    if deps.memory.enabled {
        let budget = BudgetSpec { max_tokens: Some(deps.memory.update_max_tokens), ..BudgetSpec::default() };
        deps.publisher.runnable(&deps.store.submit_memory_updates(CHUNK, &budget).await?);
    }
    Ok(())
}

pub(super) async fn forget_old_episodes(deps: &Deps) -> Result<(), StoreError> {
    let keep = deps.memory.keep;
    if keep > Duration::ZERO
        && let Ok(kept) = chrono::Duration::from_std(keep)
    {
        deps.store.forget_old_episodes(deps.store.now().await? - kept).await?;
    }
    Ok(())
}

pub(super) async fn count_workers(deps: &Deps) -> Result<Value, StoreError> {
    Ok(json!({ "live": deps.store.count_live_workers().await? }))
}

/// Counts one part of the table. The counts are those of the last round over all parts.
pub(super) async fn count_waiting(deps: &Deps, before: Value) -> Result<Value, StoreError> {
    let (some, next) = deps.store.waiting_part(before["part"].as_i64().unwrap_or_default()).await?;
    let so_far = |reason: &WaitReason| before["so_far"][reason.as_str()].as_u64().unwrap_or_default();
    let counts: Value = WaitReason::ALL
        .iter()
        .filter(|reason| **reason != WaitReason::Worker)
        .map(|reason| (reason.as_str().to_owned(), json!(so_far(reason) + some.get(reason).unwrap_or(&0))))
        .collect();
    Ok(match next {
        0 => json!({ "counts": counts }),
        part => json!({ "part": part, "so_far": counts, "counts": before["counts"] }),
    })
}

pub(super) fn show_waiting(told: &Value) {
    for reason in WaitReason::ALL {
        if let Some(count) = told["counts"][reason.as_str()].as_u64() {
            metrics::executions_waiting(*reason, count);
        }
    }
}

pub(super) async fn look_for_alarms(deps: &Deps) -> Result<Value, StoreError> {
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

pub(super) fn show_alarms(told: &Value) {
    let age = told[0].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    metrics::oldest_snapshot(age.unwrap_or_default(), told[1].as_bool().unwrap_or_default());
}

pub(super) async fn tend_quarantine(deps: &Deps, rules: &QuarantineRules) -> Result<(), StoreError> {
    let tended = deps.store.tend_quarantine(rules).await?;
    deps.publisher.runnable(&tended.runnable);
    for released in &tended.runnable {
        tracing::info!(execution.id = %released.id, "a quarantined execution is tried again");
    }
    for canary in &tended.passed {
        tracing::info!(
            execution.id = %canary, "a canary ended without killing its worker; the rest of its group follows"
        );
    }
    for definition in &tended.held {
        tracing::warn!(definition.key = definition, "too many executions killed their workers; new ones are held back");
    }
    Ok(())
}

/// Tops up the wake-ups of every queue with runnable executions, and returns the depths.
pub(super) async fn republish(deps: &Deps) -> Result<Value, StoreError> {
    let heads = deps.store.queue_heads(HEAD_CAP).await?;
    for head in &heads {
        if let Ok(queue) = QueueName::new(&head.queue) {
            deps.publisher.republish(&queue, usize::try_from(head.runnable).unwrap_or_default()).await;
        }
    }
    Ok(heads.iter().map(|head| json!([head.queue, head.runnable, head.oldest.as_secs_f64()])).collect())
}

pub(super) fn show_backlogs(told: &Value) {
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
