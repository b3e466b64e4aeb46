//! The sweep: deadlines, executions without a serving worker, schedules, counts.

use std::time::Duration;

use chrono::TimeDelta;
use longhaul_domain::WaitReason;
use longhaul_store::executions::submit::NewExecution;
use longhaul_store::fleet::duties::DoneDuty;

use crate::support::leases::{Conclusion, World, end_overdue};
use crate::support::wait::{SOON, eventually};

const GRACE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn schedule_comes_due_on_the_databases_clock() {
    let world = World::create().await;
    let mut execution = world.new_execution().await;
    execution.run_at = Some(world.store.now().await.unwrap() + TimeDelta::hours(1));
    let id = execution.id;
    world.store.submit_executions(&[execution.into()]).await.unwrap();
    let worker = world.worker().await;
    assert!(worker.claim(1).await.is_empty() && world.store.wake_due(10).await.unwrap().is_empty());
    world.check().await;
    world.shift_clock(3_601.0).await;
    assert_eq!(world.store.wake_due(10).await.unwrap()[0].id, id);
    assert_eq!(worker.claim_one().await.id, id);
    world.check().await;
}

#[tokio::test]
async fn overdue_execution_ends_waiting_or_held() {
    let world = World::create().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut execution = world.new_execution().await;
        execution.deadline = Duration::from_secs(60);
        ids.push(execution.id);
        world.store.submit_executions(&[execution.into()]).await.unwrap();
    }
    let worker = world.worker().await;
    let held = worker.claim_one().await;
    world.shift_clock(61.0).await;
    let waiting = ids.iter().copied().find(|id| *id != held.id).unwrap();
    assert_eq!(end_overdue(&world.store, GRACE).await, [waiting], "a held one has its grace");
    world.shift_clock(31.0).await;
    assert_eq!(end_overdue(&world.store, GRACE).await, [held.id]);
    for id in ids {
        assert_eq!(world.standing(id).await, ("FAILED".into(), None, Some("deadline_exceeded".into())));
    }
    assert!(worker.finish(&held).await.is_err());
    assert!(end_overdue(&world.store, GRACE).await.is_empty());
    world.check().await;
}

#[tokio::test]
async fn unserved_execution_parks_until_a_worker_serves_it() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    assert_eq!(world.store.unserved().await.unwrap(), [("default".to_owned(), String::new())]);
    assert_eq!(world.store.park_unserved(("default", ""), GRACE, 10).await.unwrap(), 0, "not before the grace");
    world.shift_clock(40.0).await;
    assert_eq!(world.store.park_unserved(("default", ""), GRACE, 10).await.unwrap(), 1);
    assert_eq!(world.standing(id).await.1.as_deref(), Some("no_worker"));
    assert!(world.store.wake_served(10).await.unwrap().is_empty());
    world.check().await;
    let worker = world.worker().await;
    assert_eq!(world.store.wake_served(10).await.unwrap()[0].id, id);
    worker.finish(&worker.claim_one().await).await.unwrap();
    assert_eq!(world.events(id).await, ["submitted", "parked", "woken", "claimed", "finished"]);
    world.check().await;
}

#[tokio::test]
async fn stale_parked_row_wakes_no_execution() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    // A stale row, as a sweep has read it before another one woke the execution and a worker claimed it.
    sqlx::query(
        "insert into parked (execution_id, tenant_id, wait_reason, wait_until) values ($1, $2, 'no_worker', \
         longhaul_now() + interval '1 hour')",
    )
    .bind(id.0)
    .bind(world.tenant.0)
    .execute(world.pool())
    .await
    .unwrap();
    assert!(world.store.wake_served(10).await.unwrap().is_empty());
    assert_eq!(world.standing(id).await, ("IN_PROGRESS".into(), None, None), "it is held");
    let wait = Some(Duration::from_secs(60));
    let reason = WaitReason::Scheduled;
    worker.end(&claimed, Conclusion::Park { reason, wait, wake_seq: claimed.wake_seq }).await.unwrap();
    assert_eq!(world.standing(id).await.1.as_deref(), Some("scheduled"));
    world.check().await;
}

#[tokio::test]
async fn folded_counts_match_the_executions() {
    let world = World::create().await;
    world.submit(30).await;
    let worker = world.worker().await;
    for claimed in worker.claim(10).await {
        worker.finish(&claimed).await.unwrap();
        world.store.fold_counts(3).await.unwrap();
        world.check().await;
    }
    world.store.fold_counts(10_000).await.unwrap();
    let left: i64 =
        sqlx::query_scalar("select count(*) from execution_count_changes").fetch_one(world.pool()).await.unwrap();
    assert_eq!(left, 0);
    world.check().await;
}

/// After an outage, a worker gets to store a finished result before the sweep ends its execution (core-rules 4).
#[tokio::test]
async fn held_overdue_execution_ends_after_steady_renewals() {
    const STEADY: Duration = Duration::from_secs(10);
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let held = worker.claim_one().await;
    world.shift_clock(3_600.0 + 50.0).await;
    let steady_since = async |seconds: f64| {
        sqlx::query("update worker_heartbeats set steady_since = clock_timestamp() - $1 * interval '1 second'")
            .bind(seconds)
            .execute(world.pool())
            .await
            .unwrap();
    };
    steady_since(1.0).await;
    assert!(world.store.neglected(10, GRACE, STEADY).await.unwrap().is_empty());
    steady_since(60.0).await;
    assert_eq!(world.store.neglected(10, GRACE, STEADY).await.unwrap(), [held.id]);
    let lease = world.store.leases_of(worker.id, Duration::ZERO).await.unwrap().remove(0);
    assert!(lease.overdue > GRACE, "its own worker sees it too");
    assert_eq!(world.store.end_held(&[held.id], GRACE).await.unwrap(), [held.id]);
    assert!(worker.finish(&held).await.is_err());
    world.check().await;
}

const DUTY: (&str, Duration) = ("look after something", Duration::from_secs(3_600));

#[tokio::test]
async fn due_duty_is_taken_by_one_worker() {
    let world = World::create().await;
    assert!(world.store.take_duties(&[DUTY]).await.unwrap().is_empty(), "the first look makes its row");
    let mut last = None;
    for round in 1..=3 {
        let looks = (0..100).map(|_| world.store.take_duties(&[DUTY]));
        let looks = futures::future::join_all(looks).await;
        let taken: Vec<_> = looks.into_iter().flat_map(Result::unwrap).filter_map(|duty| duty.taken_at).collect();
        assert_eq!(taken.len(), 1, "in round {round}");
        let done = |period| DoneDuty { name: DUTY.0, taken_at: taken[0], period, told: Some(round.into()) };
        world.store.finish_duties(&[done(DUTY.1)]).await.unwrap();
        let look = world.store.take_duties(&[DUTY]).await.unwrap().remove(0);
        assert_eq!((look.taken_at, look.told), (None, Some(round.into())), "not due, and everybody is told");
        world.store.finish_duties(&[done(Duration::ZERO)]).await.unwrap();
        last = Some(taken[0]);
    }
    // A worker that took the duty earlier can no longer finish it.
    let taken = world.store.take_duties(&[DUTY]).await.unwrap()[0].taken_at.unwrap();
    assert!(last.is_some_and(|last| last < taken));
    let late = DoneDuty { name: DUTY.0, taken_at: last.unwrap(), period: Duration::ZERO, told: None };
    world.store.finish_duties(&[late]).await.unwrap();
    assert_eq!(world.store.take_duties(&[DUTY]).await.unwrap()[0].taken_at, None);
}

/// Buffers that one look for due duties reads, the least of twenty.
async fn look_cost(world: &World) -> i64 {
    let look = "explain (analyze, buffers, format json)
        select * from longhaul_take_duties(array['look after something'], array[0], 0)";
    let mut least = i64::MAX;
    for _ in 0..20 {
        let plan: serde_json::Value = sqlx::query_scalar(look).fetch_one(world.pool()).await.unwrap();
        let blocks = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        least = least.min(blocks("Shared Hit Blocks") + blocks("Shared Read Blocks"));
    }
    least
}

#[tokio::test]
async fn held_snapshot_does_not_slow_duty_looks() {
    let world = World::create().await;
    world.store.take_duties(&[DUTY]).await.unwrap();
    let before = look_cost(&world).await;
    let mut snapshot = world.pool().begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *snapshot).await.unwrap();
    sqlx::query("select count(*) from sweep_duties").execute(&mut *snapshot).await.unwrap();
    for _ in 0..1_000 {
        sqlx::query("select from longhaul_take_duties(array['look after something'], array[0], 0)")
            .execute(world.pool())
            .await
            .unwrap();
    }
    let after = look_cost(&world).await;
    drop(snapshot);
    // A look that reads dead row versions would read a thousand buffers.
    assert!(after <= before + 100, "{before} buffers before, {after} after");
}

/// An execution that cannot be woken is set aside alone, and tried again later; the others are woken (core-rules 30).
#[tokio::test]
async fn poisoned_timer_is_set_aside_alone() {
    let world = World::create().await;
    let run_at = Some(world.store.now().await.unwrap() + TimeDelta::seconds(60));
    let mut ids = Vec::new();
    for _ in 0..9 {
        let new = NewExecution { run_at, ..world.new_execution().await };
        ids.push(new.id);
        world.store.submit_executions(&[new.into()]).await.unwrap();
    }
    // Its next event is there already.
    sqlx::query("insert into events (execution_id, seq, at, kind) values ($1, 2, longhaul_now(), 'woken')")
        .bind(ids[4].0)
        .execute(world.pool())
        .await
        .unwrap();
    world.shift_clock(61.0).await;
    // PostgreSQL reports an error before it releases the locks of the statement, so a portion may find a row locked.
    let mut woken = 0;
    eventually("the others are woken", SOON, async || {
        woken += world.store.wake_due(500).await.unwrap().len();
        let aside = world.store.list_set_aside(10).await.unwrap();
        if woken == 8 && !aside.is_empty() { Ok(()) } else { Err(woken) }
    })
    .await;
    let aside = world.store.list_set_aside(10).await.unwrap();
    assert_eq!(
        (aside.len(), aside[0].what.as_str(), &aside[0].subject),
        (1, "wake due executions", &ids[4].0.to_string())
    );
    assert!(world.store.wake_due(500).await.unwrap().is_empty(), "it is left alone for a while");
    assert_eq!(world.store.list_set_aside(10).await.unwrap()[0].attempts, 1);
    sqlx::query("delete from events where execution_id = $1 and seq = 2")
        .bind(ids[4].0)
        .execute(world.pool())
        .await
        .unwrap();
    world.shift_clock(61.0).await;
    assert_eq!(world.store.wake_due(500).await.unwrap()[0].id, ids[4]);
    world.check().await;
}
