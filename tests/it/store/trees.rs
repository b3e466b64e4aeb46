//! Core-rules 17 over trees: an execution that ended or is being cancelled cancels all its descendants, even those
//! being spawned.

use longhaul_domain::ExecutionId;
use longhaul_store::executions::claims::Claimed;
use longhaul_store::executions::control::Cancelled;

use longhaul_store::executions::children::{SpawnRefused, TreeLimits};

use crate::support::leases::{Conclusion, ROOMY, TestWorker, World};

async fn sweep(world: &World) -> usize {
    let mut told = 0;
    loop {
        let cancelled = world.store.cancel_descendants(7).await.unwrap();
        if cancelled.is_empty() {
            return told;
        }
        told += cancelled.len();
    }
}

async fn open(world: &World) -> Vec<(uuid::Uuid, Option<String>)> {
    sqlx::query_as("select id, wait_reason from executions where finished_at is null and cancel_requested_at is null")
        .fetch_all(world.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn end_cancels_open_descendants_only() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let root = worker.claim_one().await;
    worker.spawn(&root, 0..3).await;
    let children = worker.claim(3).await;
    worker.spawn(&children[0], 0..2).await;
    worker.finish(&children[2]).await.unwrap();
    assert_eq!(sweep(&world).await, 0, "nothing ended that has open children");
    worker.finish(&root).await.unwrap();
    // The two held children get the cancel flag; the unheld grandchildren end once their parent was told.
    assert_eq!(sweep(&world).await, 4);
    assert_eq!(open(&world).await, []);
    for child in &children[..2] {
        let ended = worker.end(child, Conclusion::Release { drained: false }).await.unwrap();
        assert_eq!(ended.parent, Some(root.id));
        assert_eq!(world.standing(child.id).await.2.as_deref(), Some("cancelled"));
    }
    assert_eq!(world.standing(children[2].id).await.0, "FINISHED");
    assert_eq!(sweep(&world).await, 0);
    let left: i64 = sqlx::query_scalar("select count(*) from ending_parents").fetch_one(world.pool()).await.unwrap();
    assert_eq!(left, 0);
    world.check().await;
}

/// Claims executions of the tree and spawns below each of them, until none is left to claim.
async fn grow(worker: &TestWorker) -> Vec<Claimed> {
    let mut held = Vec::new();
    loop {
        let claimed = worker.claim(20).await;
        if claimed.is_empty() {
            return held;
        }
        for one in &claimed {
            if one.depth < 2 {
                // Refused under a cancelled parent, which is the point of the test.
                let _ = worker.try_spawn(one, 0..9, ROOMY).await.unwrap();
            }
        }
        held.extend(claimed);
    }
}

#[tokio::test]
async fn cancel_reaches_a_tree_that_still_spawns() {
    let world = World::create().await;
    for round in 0..5_usize {
        let root: ExecutionId = world.submit(1).await[0];
        let (one, two) = (world.worker().await, world.worker().await);
        let cancel = async {
            // Cancels at another size of the tree in each round; in the last one the tree is complete.
            let grown = "select count(*) from executions where id = $1 or root_id = $1";
            loop {
                let count: i64 = sqlx::query_scalar(grown).bind(root.0).fetch_one(world.pool()).await.unwrap();
                if count > (round as i64 * 24).min(90) {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let cancelled = world.store.cancel_execution(world.tenant, root).await.unwrap();
            assert!(matches!(cancelled, Cancelled::Ended | Cancelled::Requested));
            sweep(&world).await;
        };
        let (held_one, held_two, ()) = tokio::join!(grow(&one), grow(&two), cancel);
        for (worker, held) in [(&one, held_one), (&two, held_two)] {
            for claimed in &held {
                worker.end(claimed, Conclusion::Release { drained: false }).await.unwrap();
            }
            sweep(&world).await;
        }
        let open: i64 = sqlx::query_scalar("select count(*) from executions where finished_at is null")
            .fetch_one(world.pool())
            .await
            .unwrap();
        assert_eq!(open, 0, "round {round}");
        assert!(one.claim(100).await.is_empty());
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_spawns_fill_tree_exactly_to_limit() {
    let world = World::create().await;
    let worker = world.worker().await;
    for round in 0..10 {
        world.submit(1).await;
        let root = worker.claim_one().await;
        worker.spawn(&root, 0..8).await;
        let parents = worker.claim(8).await;
        // Nine exist; a limit of 22 leaves room for four of eight parents with three children each, and for one more
        // child.
        let limits = TreeLimits { executions: 22, ..ROOMY };
        let stores =
            futures::future::join_all(parents.iter().map(|parent| worker.try_spawn(parent, 0..3, limits))).await;
        let (started, refused): (Vec<_>, Vec<_>) =
            stores.into_iter().map(|spawned| spawned.unwrap()).partition(Result::is_ok);
        assert_eq!((started.len(), refused.len()), (4, 4), "round {round}");
        assert!(refused.into_iter().all(|refused| refused == Err(SpawnRefused::TreeFull(22))));
        let size: i64 = sqlx::query_scalar("select count(*) from executions where id = $1 or root_id = $1")
            .bind(root.id.0)
            .fetch_one(world.pool())
            .await
            .unwrap();
        assert_eq!(size, 21, "round {round}");
        // The remaining place can still be used.
        assert_eq!(worker.try_spawn(&root, 8..9, limits).await.unwrap().unwrap().len(), 1);
        assert_eq!(worker.try_spawn(&root, 9..10, limits).await.unwrap(), Err(SpawnRefused::TreeFull(22)));
        // Leaves nothing to claim for the next round.
        worker.claim(100).await;
    }
}
