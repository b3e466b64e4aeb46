//! Claims: what they wait for and what they do not (core-rules 1).

use std::time::Duration;

use longhaul_shared::store::{Store, StoreOptions};

use crate::support::leases::{TestWorker, World};
use crate::support::wait::{SOON, within};

#[tokio::test]
async fn a_claim_and_its_comparison_need_no_connection_of_the_pool() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let store = Store::open(StoreOptions { max_connections: 2, ..StoreOptions::new(&world.db.url) }).unwrap();
    let worker = TestWorker::start(&store).await;
    // Every connection is taken, as by writes that wait for a slow disk, and stays taken until the end of the test.
    let _taken = [store.pool().acquire().await.unwrap(), store.pool().acquire().await.unwrap()];
    let claimed = within("the claim", SOON, worker.claim_one()).await;
    assert_eq!(claimed.id, id);
    let held = within("the comparison", SOON, store.leases_of(worker.id, Duration::ZERO)).await.unwrap();
    assert_eq!(held.iter().map(|lease| (lease.id, lease.token)).collect::<Vec<_>>(), [(id, claimed.token)]);
}

#[tokio::test]
async fn the_server_ends_a_claim_that_takes_too_long_and_nothing_is_taken() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    // Who claims must be alive: the claim waits for whoever is about to say otherwise.
    let mut reaper = world.pool().begin().await.unwrap();
    sqlx::query("select from workers for update").execute(&mut *reaper).await.unwrap();
    let error = within("the claim's end", SOON, worker.try_claim(1)).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    reaper.rollback().await.unwrap();
    assert_eq!(world.standing(id).await, ("PENDING".into(), Some("worker".into()), None));
    assert!(world.store.leases_of(worker.id, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(worker.claim_one().await.attempt, 1);
    world.check().await;
}
