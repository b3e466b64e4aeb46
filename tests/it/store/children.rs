//! Children are spawned once, always wake their parent (core-rules 3), and never block other writes (core-rules 9).

use std::time::Duration;

use longhaul_domain::{ExecutionId, WaitReason};
use longhaul_store::StoreError;
use longhaul_store::executions::children::{SpawnLease, SpawnRefused, TreeLimits};
use longhaul_store::executions::claims::Claimed;
use longhaul_store::executions::sub_agents::ChildWait;
use longhaul_store::history::journal::StepKind::Turn;

use crate::support::leases::{Conclusion, ROOMY, TestWorker, World, end_overdue, step, write};

fn wait_for_children(wake_seq: i32) -> Conclusion {
    Conclusion::Park { reason: WaitReason::Children, wait: None, wake_seq }
}

/// A claimed parent with this number of unclaimed children.
async fn family(world: &World, worker: &TestWorker, children: u16) -> (Claimed, Vec<ExecutionId>) {
    world.submit(1).await;
    let parent = worker.claim_one().await;
    let ids = worker.spawn(&parent, 0..children).await;
    (parent, ids)
}

#[tokio::test]
async fn respawn_after_crash_adds_only_missing_children() {
    let world = World::create().await;
    let worker = world.worker().await;
    let (parent, first) = family(&world, &worker, 2).await;
    assert_eq!(worker.spawn(&parent, 0..2).await, first, "the same attempt");
    worker.die().await;
    world.store.reap(10).await.unwrap();
    assert!(matches!(worker.try_spawn(&parent, 0..2, ROOMY).await, Err(StoreError::LeaseLost)));
    let other = world.worker().await;
    let parent = other.claim(10).await.into_iter().find(|claimed| claimed.id == parent.id).unwrap();
    let again = other.spawn(&parent, 0..3).await;
    assert_eq!(again[..2], first[..]);
    let row: (Option<uuid::Uuid>, Option<uuid::Uuid>, i16) =
        sqlx::query_as("select parent_id, root_id, depth from executions where id = $1")
            .bind(again[2].0)
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert_eq!(row, (Some(parent.id.0), Some(parent.id.0), 1));
    let told = world.events(parent.id).await;
    assert_eq!(told.iter().filter(|kind| *kind == "child_spawned").count(), 3);
    world.check().await;
}

#[tokio::test]
async fn spawn_refusal_names_limit_and_starts_none() {
    let world = World::create().await;
    let worker = world.worker().await;
    let (parent, _) = family(&world, &worker, 2).await;
    let refused = async |limits| worker.try_spawn(&parent, 0..4, limits).await.unwrap().unwrap_err();
    assert_eq!(refused(TreeLimits { depth: 0, ..ROOMY }).await, SpawnRefused::TooDeep(0));
    assert_eq!(refused(TreeLimits { children: 3, ..ROOMY }).await, SpawnRefused::TooManyChildren(3));
    assert_eq!(refused(TreeLimits { executions: 4, ..ROOMY }).await, SpawnRefused::TreeFull(4));
    assert_eq!(world.store.children_of(parent.id).await.unwrap().len(), 2);
    assert_eq!(worker.spawn(&parent, 0..2).await.len(), 2, "what exists is found under any limit");
    let exact = TreeLimits { depth: 1, children: 4, executions: 5 };
    assert_eq!(worker.try_spawn(&parent, 0..4, exact).await.unwrap().unwrap().len(), 4);
    world.store.cancel_execution(world.tenant, parent.id).await.unwrap();
    assert_eq!(refused(ROOMY).await, SpawnRefused::Cancelled);
    world.check().await;
}

/// Every way to end a child.
const ENDS: [&str; 6] = ["finish", "fail", "cancel", "crash", "deadline while waiting", "deadline while held"];

async fn end(world: &World, child: ExecutionId, how: &str) {
    let worker = world.worker().await;
    match how {
        "finish" => drop(worker.finish(&worker.claim_one().await).await.unwrap()),
        "fail" => drop(worker.end(&worker.claim_one().await, Conclusion::Cancel).await.unwrap()),
        "cancel" => drop(world.store.cancel_execution(world.tenant, child).await.unwrap()),
        "crash" => {
            worker.claim_one().await;
            world.store.cancel_execution(world.tenant, child).await.unwrap();
            worker.die().await;
            assert_eq!(world.store.reap(10).await.unwrap().len(), 1);
        }
        "deadline while waiting" => {
            let claimed = worker.claim_one().await;
            let park = Conclusion::Park { reason: WaitReason::Approval, wait: None, wake_seq: claimed.wake_seq };
            worker.end(&claimed, park).await.unwrap();
            overdue(world, child).await;
            world.store.wake_due(10).await.unwrap();
        }
        "deadline while held" => {
            worker.claim_one().await;
            overdue(world, child).await;
            assert_eq!(end_overdue(&world.store, Duration::ZERO).await, [child]);
        }
        other => panic!("{other}"),
    }
}

/// Moves the child past its deadline; the parent keeps its own.
async fn overdue(world: &World, child: ExecutionId) {
    for sql in [
        "update executions set deadline_at = longhaul_now(), active_until = active_until - interval '2 hours' \
         where id = $1",
        "update parked set wait_until = longhaul_now() where execution_id = $1",
    ] {
        sqlx::query(sql).bind(child.0).execute(world.pool()).await.unwrap();
    }
}

#[tokio::test]
async fn any_end_of_last_child_wakes_parked_parent() {
    let world = World::create().await;
    for how in ENDS {
        let worker = world.worker().await;
        let (parent, ids) = family(&world, &worker, 1).await;
        assert_eq!(
            worker.end(&parent, wait_for_children(parent.wake_seq)).await.unwrap().wait_reason,
            Some(WaitReason::Children)
        );
        end(&world, ids[0], how).await;
        assert_eq!(world.standing(parent.id).await.1.as_deref(), Some("worker"), "{how}");
        world.check().await;
        let again = worker.claim_one().await;
        assert_eq!(again.id, parent.id, "{how}");
        let told = world.events(parent.id).await;
        assert_eq!(told[4..], ["child_ended", "woken", "claimed"], "{how}");
        worker.finish(&again).await.unwrap();
    }
}

#[tokio::test]
async fn child_end_before_park_keeps_parent_runnable() {
    let world = World::create().await;
    for how in ENDS {
        let worker = world.worker().await;
        let (parent, ids) = family(&world, &worker, 1).await;
        end(&world, ids[0], how).await;
        let parked = worker.end(&parent, wait_for_children(parent.wake_seq)).await.unwrap();
        assert_eq!(parked.wait_reason, Some(WaitReason::Worker), "{how}");
        worker.finish(&worker.claim_one().await).await.unwrap();
        world.check().await;
    }
}

#[tokio::test]
async fn child_end_during_park_wakes_parent() {
    let world = World::create().await;
    let (worker, other) = (world.worker().await, world.worker().await);
    for round in 0..20 {
        let (parent, _) = family(&world, &worker, 1).await;
        // Even rounds use one batch, odd rounds two that overlap, so both orders occur.
        let ender = if round % 2 == 0 { &worker } else { &other };
        let child = ender.claim_one().await;
        let (parked, finished) =
            tokio::join!(worker.end(&parent, wait_for_children(parent.wake_seq)), ender.finish(&child));
        parked.unwrap();
        assert_eq!(finished.unwrap().parent, Some(parent.id));
        assert_eq!(world.standing(parent.id).await.1.as_deref(), Some("worker"));
        worker.finish(&worker.claim_one().await).await.unwrap();
        world.check().await;
    }
}

#[tokio::test]
async fn child_end_alone_waits_for_uncommitted_park() {
    let world = World::create().await;
    let worker = world.worker().await;
    let (parent, _) = family(&world, &worker, 1).await;
    world.submit(1).await;
    let mut claimed = worker.claim(2).await;
    claimed.sort_by_key(|claimed| claimed.root != parent.id);
    let (child, stranger) = (claimed.remove(0), claimed.remove(0));
    // The row as an uncommitted park has it: locked, not yet written.
    let mut lock = world.pool().begin().await.unwrap();
    sqlx::query("select id from executions where id = $1 for update")
        .bind(parent.id.0)
        .fetch_one(&mut *lock)
        .await
        .unwrap();
    let writer = worker.writer.clone();
    let ending = tokio::spawn({
        let end = child.lease().finish("1".into());
        async move { writer.conclude(end).await }
    });
    // The writer's other executions go on: the batch leaves the child out and does not wait.
    worker.record(write(&stranger, 1, vec![step(1, Turn, "x")])).await.unwrap();
    worker.finish(&stranger).await.unwrap();
    assert!(!ending.is_finished());
    lock.rollback().await.unwrap();
    ending.await.unwrap().unwrap();
    let parked = worker.end(&parent, wait_for_children(parent.wake_seq)).await.unwrap();
    assert_eq!(parked.wait_reason, Some(WaitReason::Worker));
    world.check().await;
}

#[tokio::test]
async fn only_last_of_many_children_wakes_parent() {
    let world = World::create().await;
    let worker = world.worker().await;
    let (parent, _) = family(&world, &worker, 50).await;
    worker.end(&parent, wait_for_children(parent.wake_seq)).await.unwrap();
    let children = worker.claim(50).await;
    let (last, rest) = children.split_last().unwrap();
    for ended in futures::future::join_all(rest.iter().map(|child| worker.finish(child))).await {
        ended.unwrap();
    }
    assert_eq!(world.standing(parent.id).await.1.as_deref(), Some("children"));
    worker.finish(last).await.unwrap();
    assert_eq!(world.standing(parent.id).await.1.as_deref(), Some("worker"));
    let ids: Vec<ExecutionId> = children.iter().map(|child| child.id).collect();
    let ends = world.store.child_ends(&ids, 7).await.unwrap();
    assert_eq!(ends.len(), 50);
    assert!(ends.values().all(|end| end.output.as_deref() == Some(r#"{"total"#)));
    world.check().await;
}

#[tokio::test]
async fn wait_that_is_over_wakes_its_parent_once() {
    let world = World::create().await;
    let worker = world.worker().await;
    let (parent, ids) = family(&world, &worker, 3).await;
    let wait = ChildWait { call: &[7; 32], children: &ids[..1], until_first: false };
    let lease = SpawnLease { worker: worker.id, parent: parent.id, token: parent.token };
    world.store.wait_for_children(lease, wait).await.unwrap();
    worker.end(&parent, wait_for_children(parent.wake_seq)).await.unwrap();
    end(&world, ids[0], "cancel").await;
    assert_eq!(world.standing(parent.id).await.1.as_deref(), Some("worker"));
    let (parents, children): (Vec<_>, Vec<_>) =
        worker.claim(3).await.into_iter().partition(|claimed| claimed.id == parent.id);
    let parent = &parents[0];
    let asks = Conclusion::Park { reason: WaitReason::Approval, wait: None, wake_seq: parent.wake_seq };
    worker.end(parent, asks).await.unwrap();
    worker.finish(&children[0]).await.unwrap();
    assert_eq!(world.standing(parent.id).await.1.as_deref(), Some("approval"), "the call was answered");
    world.check().await;
}

#[tokio::test]
async fn lost_child_wake_is_repaired_by_the_sweep() {
    let world = World::create().await;
    let worker = world.worker().await;
    let (parent, ids) = family(&world, &worker, 1).await;
    worker.end(&parent, wait_for_children(parent.wake_seq)).await.unwrap();
    assert!(world.store.wake_childless(None).await.unwrap().0.is_empty(), "a child is open");
    // Simulates a lost wake: without the trigger, the child's end does not wake its parent.
    sqlx::query("alter table executions disable trigger executions_over").execute(world.pool()).await.unwrap();
    end(&world, ids[0], "finish").await;
    assert_eq!(world.store.wake_childless(None).await.unwrap().0[0].id, parent.id);
    assert_eq!(worker.claim_one().await.id, parent.id);
}
