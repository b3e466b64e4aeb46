//! Core-rules 9: the reply to a committed write is lost, the write is repeated, and the state is that of one write.

use std::time::Duration;

use longhaul_store::executions::outcomes::LeaseKey;

use longhaul_store::executions::submit::{Submitted, Submitter};
use longhaul_store::fleet::lease_writer::LeaseWriter;
use longhaul_store::history::journal::StepKind::Turn;
use longhaul_store::{Store, StoreOptions};
use longhaul_testkit::proxy::FaultProxy;

use crate::support::leases::{Conclusion, TestWorker, World, step, write};

/// A store whose replies pass through a proxy.
async fn through_proxy(world: &World) -> (FaultProxy, Store) {
    let proxy = FaultProxy::before(&world.db.url).await.unwrap();
    let options = StoreOptions { max_connections: 2, ..StoreOptions::new(proxy.url_through(&world.db.url).unwrap()) };
    (proxy, Store::open(options).unwrap())
}

#[tokio::test]
async fn submit_with_lost_reply_is_stored_once() {
    let world = World::create().await;
    let (proxy, store) = through_proxy(&world).await;
    let submitter = Submitter::spawn(store, Duration::from_secs(20));
    let execution = world.new_execution().await;
    let id = execution.id;
    let lost = proxy.lose_reply("insert into idempotency_keys", "SELECT 1");
    assert_eq!(submitter.submit(execution).await.unwrap(), Submitted::Created(id));
    lost.lost().await.unwrap();
    assert_eq!(world.events(id).await, ["submitted"]);
    world.check().await;
}

#[tokio::test]
async fn step_and_end_with_lost_replies_are_written_once() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let (proxy, store) = through_proxy(&world).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let writer = LeaseWriter::spawn(&store, worker.id, Duration::from_secs(20));
    let lost = proxy.lose_reply("insert into steps as s", "UPDATE 1");
    writer.record(write(&claimed, 1, vec![step(1, Turn, "one")])).await.unwrap();
    lost.lost().await.unwrap();
    let conclusion = Conclusion::Finish { output: "7".into() };
    let lost = proxy.lose_reply("insert into attempts", "UPDATE 1");
    writer.conclude(conclusion.of(claimed.lease())).await.unwrap();
    lost.lost().await.unwrap();
    assert_eq!(world.events(id).await, ["submitted", "claimed", "turn", "finished"]);
    let turns: i32 = sqlx::query_scalar("select turns from executions").fetch_one(world.pool()).await.unwrap();
    assert_eq!(turns, 1);
    world.check().await;
}

#[tokio::test]
async fn claim_with_lost_reply_is_found_and_released() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let (proxy, store) = through_proxy(&world).await;
    let worker = TestWorker::start(&store).await;
    let lost = proxy.lose_reply("longhaul_claim(", "SELECT 1");
    assert!(worker.try_claim(1).await.unwrap_err().is_retryable());
    lost.lost().await.unwrap();
    assert!(!store.leases_of(worker.id, Duration::from_secs(5)).await.unwrap()[0].is_settled);
    world.shift_clock(6.0).await;
    let held = store.leases_of(worker.id, Duration::from_secs(5)).await.unwrap();
    assert!(held.len() == 1 && held[0].id == id && held[0].is_settled, "{held:?}");
    let conclusion = Conclusion::Release { drained: false };
    // The reply to the release may be lost as well.
    let lost = proxy.lose_reply("insert into attempts", "UPDATE 1");
    worker.writer.conclude(conclusion.of(LeaseKey { id, token: held[0].token })).await.unwrap();
    lost.lost().await.unwrap();
    assert_eq!(worker.claim_one().await.id, id);
    world.check().await;
}
