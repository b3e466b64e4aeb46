//! Core-rules 17: a cancel that races with a claim, park, release or reap ends the execution, in either order.

use std::time::Duration;

use longhaul_domain::{ExecutionId, ExecutionStatus, WaitReason};
use longhaul_store::executions::control::Cancelled;
use longhaul_store::history::journal::StepKind::Turn;

use crate::support::leases::{Conclusion, World, step, transient, write};
use crate::support::wait::{SOON, eventually, within};

async fn cancel(world: &World, id: ExecutionId) -> Cancelled {
    world.store.cancel_execution(world.tenant, id).await.unwrap()
}

async fn is_cancelled(world: &World, id: ExecutionId) {
    assert_eq!(world.standing(id).await, ("FAILED".into(), None, Some("cancelled".into())));
    assert_eq!(world.events(id).await.last().map(String::as_str), Some("failed"));
    world.check().await;
}

#[tokio::test]
async fn cancel_before_an_end_overrides_all_but_finish() {
    let world = World::create().await;
    let worker = world.worker().await;
    let ends = |wake_seq| {
        vec![
            Conclusion::Park { reason: WaitReason::Approval, wait: None, wake_seq },
            Conclusion::Park {
                reason: WaitReason::Children,
                wait: Some(Duration::from_secs(5)),
                wake_seq: wake_seq + 1,
            },
            Conclusion::Retry { failure: transient(), delay: Duration::from_secs(10), wake_seq },
            Conclusion::Release { drained: true },
            Conclusion::Release { drained: false },
            Conclusion::Fail { failure: transient() },
            Conclusion::Cancel,
        ]
    };
    for place in 0..ends(0).len() {
        let id = world.submit(1).await[0];
        let claimed = worker.claim_one().await;
        assert_eq!(cancel(&world, id).await, Cancelled::Requested);
        let recorded = worker.record(write(&claimed, 1, vec![step(1, Turn, "x")])).await.unwrap();
        assert!(recorded.cancel_requested, "a write tells its attempt");
        let end = ends(claimed.wake_seq).remove(place);
        let concluded = worker.end(&claimed, end).await.unwrap();
        assert_eq!(concluded.status, ExecutionStatus::Failed);
        is_cancelled(&world, id).await;
    }
    let id = world.submit(1).await[0];
    let claimed = worker.claim_one().await;
    cancel(&world, id).await;
    assert_eq!(worker.finish(&claimed).await.unwrap().status, ExecutionStatus::Finished, "a finish that came stands");
    world.check().await;
}

#[tokio::test]
async fn cancelled_execution_of_dead_worker_ends_at_reap() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    worker.claim_one().await;
    assert_eq!(cancel(&world, id).await, Cancelled::Requested);
    worker.die().await;
    let reaped = world.store.reap(10).await.unwrap();
    assert_eq!(reaped[0].failure_code.as_deref(), Some("cancelled"));
    is_cancelled(&world, id).await;
}

#[tokio::test]
async fn cancel_waits_for_uncommitted_park_and_ends_it() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    // The row as an uncommitted park has it: locked, not yet written.
    let mut lock = world.pool().begin().await.unwrap();
    sqlx::query("select id from executions where id = $1 for update").bind(id.0).fetch_one(&mut *lock).await.unwrap();
    let (store, tenant) = (world.store.clone(), world.tenant);
    let cancelling = tokio::spawn(async move { store.cancel_execution(tenant, id).await });
    let writer = worker.writer.clone();
    let park = Conclusion::Park { reason: WaitReason::Approval, wait: None, wake_seq: claimed.wake_seq };
    let end = park.of(claimed.lease());
    let parking = tokio::spawn(async move { writer.conclude(end).await });
    lock.commit().await.unwrap();
    parking.await.unwrap().unwrap();
    cancelling.await.unwrap().unwrap();
    is_cancelled(&world, id).await;
}

#[tokio::test]
async fn racing_cancels_and_claims_give_one_end_each() {
    let world = World::create().await;
    let ids = world.submit(100).await;
    let worker = world.worker().await;
    let claims = async {
        let mut held = Vec::new();
        while held.len() < 100 {
            let claimed = worker.claim(7).await;
            if claimed.is_empty() {
                break;
            }
            held.extend(claimed);
        }
        held
    };
    let cancels = async {
        for &id in &ids {
            cancel(&world, id).await;
        }
    };
    let (held, ()) = tokio::join!(claims, cancels);
    for claimed in &held {
        worker.end(claimed, Conclusion::Release { drained: false }).await.unwrap();
    }
    let open: i64 =
        sqlx::query_scalar("select count(*) from executions where failure_code is distinct from 'cancelled'")
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert_eq!(open, 0);
    world.check().await;
}

#[tokio::test]
async fn another_tenants_execution_is_not_found() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    assert_eq!(world.store.cancel_execution(other, id).await.unwrap(), Cancelled::NotFound);
    assert_eq!(world.standing(id).await.0, "PENDING");
}

/// Deadlock: a wake in the tree has locked the parent and wants the child, the cancel has locked the child and wants
/// the parent.
#[tokio::test]
async fn cancel_deadlocked_with_a_wake_is_retried() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let parent = worker.claim_one().await;
    let child = worker.spawn(&parent, 0..1).await[0];
    let lock = "select from executions where id = $1 for no key update";
    let mut wake = world.pool().begin().await.unwrap();
    sqlx::query(lock).bind(parent.id.0).execute(&mut *wake).await.unwrap();
    let (store, tenant) = (world.store.clone(), world.tenant);
    let cancelled = tokio::spawn(async move { store.cancel_execution(tenant, child).await });
    eventually("the cancel waits for the parent", SOON, async || {
        let waiting = "select count(*) from pg_locks where not granted";
        let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(world.pool()).await.unwrap();
        if waiting > 0 { Ok(()) } else { Err(waiting) }
    })
    .await;
    // Postgres may abort either of the two to resolve the deadlock.
    drop(sqlx::query(lock).bind(child.0).execute(&mut *wake).await);
    wake.rollback().await.unwrap();
    assert_eq!(within("the cancel", SOON, cancelled).await.unwrap().unwrap(), Cancelled::Ended);
    is_cancelled(&world, child).await;
}
