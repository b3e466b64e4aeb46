//! The sweep: deadlines, executions that nobody serves, schedules, counts.

use std::time::Duration;

use chrono::TimeDelta;
use longhaul_shared::domain::WaitReason;
use longhaul_shared::store::outcomes::Conclusion;

use crate::support::leases::World;

const GRACE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_schedule_comes_due_on_the_databases_clock() {
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
async fn what_is_past_its_deadline_ends_whether_it_waits_or_is_held() {
    let world = World::create().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut execution = world.new_execution().await;
        (execution.deadline, execution.deadline_is_near) = (Duration::from_secs(60), true);
        ids.push(execution.id);
        world.store.submit_executions(&[execution.into()]).await.unwrap();
    }
    let worker = world.worker().await;
    let held = worker.claim_one().await;
    world.shift_clock(61.0).await;
    let waiting = ids.iter().copied().find(|id| *id != held.id).unwrap();
    assert_eq!(world.store.end_overdue(10, GRACE).await.unwrap(), [waiting], "a held one has its grace");
    world.shift_clock(31.0).await;
    assert_eq!(world.store.end_overdue(10, GRACE).await.unwrap(), [held.id]);
    for id in ids {
        assert_eq!(world.standing(id).await, ("FAILED".into(), None, Some("deadline_exceeded".into())));
    }
    assert!(worker.finish(&held).await.is_err());
    assert!(world.store.end_overdue(10, GRACE).await.unwrap().is_empty());
    world.check().await;
}

#[tokio::test]
async fn what_nobody_serves_waits_for_a_worker_and_wakes_when_one_comes() {
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
async fn a_row_of_a_wait_that_is_over_wakes_nobody_and_fails_nobody() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    // As a sweep sees it that read the row before another one woke the execution and a worker took it.
    sqlx::query("insert into parked (execution_id, tenant_id, wait_reason, wait_until) values ($1, $2, 'no_worker', longhaul_now() + interval '1 hour')")
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
async fn folded_counts_are_the_counts() {
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
