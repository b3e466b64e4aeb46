//! Executions of dead workers run again; one that kills its workers does not (core-rules 4 and 5).

use std::time::Duration;

use longhaul_domain::ExecutionId;
use longhaul_store::executions::claims::Claimed;
use longhaul_store::history::journal::StepKind::{Call, Turn};
use longhaul_store::history::journal::{JournalStep, JournalWrite, StepState};

use crate::support::leases::{TestWorker, World, bury, step, write};

async fn lane(world: &World, id: ExecutionId) -> (i16, i16) {
    sqlx::query_as("select crash_count, lane from executions where id = $1")
        .bind(id.0)
        .fetch_one(world.pool())
        .await
        .unwrap()
}

/// A new worker claims everything there is and dies. Returns its claims.
async fn death(world: &World) -> Vec<Claimed> {
    let worker = world.worker().await;
    let held = worker.claim(1_000).await;
    worker.die().await;
    world.store.reap(1_000).await.unwrap();
    held
}

#[tokio::test]
async fn expired_lease_is_reclaimed_once() {
    let world = World::create().await;
    let ids = world.submit(20).await;
    let (dead, live) = (world.worker().await, world.worker().await);
    let held = dead.claim(15).await;
    let kept = live.claim(5).await;
    dead.die().await;
    let (one, two) = tokio::join!(world.store.reap(100), world.store.reap(100));
    let (one, two) = (one.unwrap(), two.unwrap());
    let mut reaped: Vec<_> = one.iter().chain(&two).map(|reaped| reaped.id).collect();
    reaped.sort_unstable();
    let mut expected: Vec<_> = held.iter().map(|claimed| claimed.id).collect();
    expected.sort_unstable();
    assert_eq!(reaped, expected);
    assert!(world.store.reap(100).await.unwrap().is_empty());
    assert!(bury(&world.store, Duration::ZERO).await.is_empty());
    let lost: i64 = sqlx::query_scalar("select count(*) from attempts where outcome = 'lost'")
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert_eq!(lost, 15);
    for claimed in kept.iter().chain(&live.claim(100).await) {
        live.finish(claimed).await.unwrap();
    }
    assert_eq!(live.claim(100).await.len() + ids.len(), 20);
    world.check().await;
}

/// As after the restore of a dump: claimed two hours ago, by a worker whose lease ran out a minute later.
#[tokio::test]
async fn time_without_a_holder_is_not_active() {
    let world = World::create().await;
    world.submit(1).await;
    world.worker().await.claim_one().await;
    sqlx::raw_sql(
        "update executions
         set claimed_at = claimed_at - interval '2 hours', active_until = active_until - interval '2 hours';
         update worker_heartbeats set expires_at = clock_timestamp() - interval '119 minutes'",
    )
    .execute(world.pool())
    .await
    .unwrap();
    assert_eq!(bury(&world.store, Duration::ZERO).await.len(), 1);
    assert_eq!(world.store.reap(10).await.unwrap().len(), 1);
    let active: f64 = sqlx::query_scalar("select extract(epoch from active_time)::float8 from executions")
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert!((59.0..90.0).contains(&active), "{active} s");
}

#[tokio::test]
async fn young_server_declares_no_worker_dead() {
    let world = World::create().await;
    let worker = world.worker().await;
    worker.expire().await;
    let century = Duration::from_secs(100 * 365 * 24 * 3_600);
    assert!(bury(&world.store, century).await.is_empty());
    assert_eq!(bury(&world.store, Duration::ZERO).await, [worker.id]);
}

#[tokio::test]
async fn third_death_in_a_row_is_crash_loop() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    for (crashes, lane_after) in [(1, 0), (2, 1)] {
        assert_eq!(death(&world).await.len(), 1);
        assert_eq!(lane(&world, id).await, (crashes, lane_after));
        assert_eq!(world.standing(id).await, ("IN_PROGRESS".into(), Some("worker".into()), None));
        world.check().await;
    }
    assert_eq!(death(&world).await.len(), 1);
    assert_eq!(world.standing(id).await, ("FAILED".into(), None, Some("crash_loop".into())));
    assert!(death(&world).await.is_empty());
    world.check().await;
}

#[tokio::test]
async fn recorded_step_clears_the_suspicion() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    for _ in 0..2 {
        death(&world).await;
    }
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    worker.record(write(&claimed, 1, vec![step(1, Turn, "progress")])).await.unwrap();
    assert_eq!(lane(&world, id).await, (0, 0));
    worker.die().await;
    world.store.reap(10).await.unwrap();
    assert_eq!(lane(&world, id).await, (1, 0));
    world.check().await;
}

#[tokio::test]
async fn events_and_intents_do_not_clear_suspicion() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    for crashes in 1..=3 {
        let worker = world.worker().await;
        let claimed = worker.claim_one().await;
        // Events alone, as every attempt records them before the step that kills its worker.
        let told = JournalWrite { steps: Vec::new(), ..write(&claimed, 1, vec![step(1, Turn, "about")]) };
        worker.record(told).await.unwrap();
        let meant = JournalStep { state: StepState::Intent, ..step(crashes, Call, "deadly") };
        worker.record(write(&claimed, 2, vec![meant])).await.unwrap();
        worker.die().await;
        world.store.reap(10).await.unwrap();
        assert_eq!(i32::from(lane(&world, id).await.0), crashes);
    }
    assert_eq!(world.standing(id).await, ("FAILED".into(), None, Some("crash_loop".into())));
    world.check().await;
}

#[tokio::test]
async fn suspects_dying_together_are_retried_alone() {
    let world = World::create().await;
    let ids = world.submit(2).await;
    for _ in 0..3 {
        assert_eq!(death(&world).await.len(), 2);
    }
    for &id in &ids {
        assert_eq!(lane(&world, id).await, (3, 2));
        assert_eq!(world.standing(id).await.1.as_deref(), Some("worker"));
    }
    // One at a time now; the one that kills its worker again is convicted.
    let worker = world.worker().await;
    let alone = take_alone(&worker).await;
    worker.die().await;
    world.store.reap(10).await.unwrap();
    assert_eq!(world.standing(alone.id).await.2.as_deref(), Some("crash_loop"));
    let innocent = ids.into_iter().find(|id| *id != alone.id).unwrap();
    let worker = world.worker().await;
    let claimed = take_alone(&worker).await;
    assert_eq!(claimed.id, innocent);
    worker.finish(&claimed).await.unwrap();
    world.check().await;
}

/// A lock on the child's parent delays the child's retake, so the suspects are taken back one by one; both were held
/// at the death (core-rules 25).
#[tokio::test]
async fn suspects_reaped_one_by_one_are_not_convicted() {
    let world = World::create().await;
    world.submit(1).await;
    let parents = world.worker().await;
    let parent = parents.claim_one().await;
    let child = parents.spawn(&parent, 0..1).await[0];
    let other = world.submit(1).await[0];
    sqlx::query("update executions set crash_count = 2, lane = 1 where worker_id is null")
        .execute(world.pool())
        .await
        .unwrap();
    let worker = world.worker().await;
    assert_eq!(worker.claim(10).await.len(), 2);
    worker.die().await;
    let mut elsewhere = world.pool().begin().await.unwrap();
    sqlx::query("select from executions where id = $1 for update")
        .bind(parent.id.0)
        .execute(&mut *elsewhere)
        .await
        .unwrap();
    let taken = world.store.reap(10).await.unwrap();
    assert_eq!(taken.iter().map(|one| one.id).collect::<Vec<_>>(), [other]);
    elsewhere.rollback().await.unwrap();
    let taken = world.store.reap(10).await.unwrap();
    assert_eq!(taken.iter().map(|one| one.id).collect::<Vec<_>>(), [child]);
    for id in [child, other] {
        assert_eq!(world.standing(id).await, ("IN_PROGRESS".into(), Some("worker".into()), None));
    }
    world.check().await;
}

async fn take_alone(worker: &TestWorker) -> Claimed {
    let mut claimed = worker.claim(1).await;
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

/// A claim may see several slots of the lane `Alone` but takes only one.
#[tokio::test]
async fn claim_takes_at_most_one_lone_execution() {
    let world = World::create().await;
    for priority in [3, 7] {
        let mut execution = world.new_execution().await;
        execution.priority = priority;
        world.store.submit_executions(&[execution.into()]).await.unwrap();
    }
    sqlx::query("update executions set lane = 2, crash_count = 3").execute(world.pool()).await.unwrap();
    let worker = world.worker().await;
    assert_eq!(worker.claim(10).await.len(), 1);
}

#[tokio::test]
async fn poison_among_many_is_convicted_alone() {
    let world = World::create().await;
    let ids = world.submit(50).await;
    let poison = ids[17];
    // The others record a step each time; the poison never does.
    for _ in 0..3 {
        let worker = world.worker().await;
        for claimed in worker.claim(100).await.iter().filter(|claimed| claimed.id != poison) {
            worker.record(write(claimed, 1, vec![step(claimed.attempt, Turn, "progress")])).await.unwrap();
        }
        worker.die().await;
        world.store.reap(1_000).await.unwrap();
    }
    let convicted: Vec<uuid::Uuid> =
        sqlx::query_scalar("select id from executions where status = 'FAILED'").fetch_all(world.pool()).await.unwrap();
    assert_eq!(convicted, [poison.0]);
    world.check().await;
}
