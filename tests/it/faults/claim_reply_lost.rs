//! The reply to a committed statement is lost: the worker cannot know, and nothing may be stuck or done twice.

use std::time::{Duration, Instant};

use longhaul_domain::{ExecutionId, limits::LimitKey};
use longhaul_store::executions::submit::NewExecution;
use longhaul_testkit::proxy::FaultProxy;
use serde_json::json;

use super::{count_of, no_call_is_repeated, several_turns, worker};
use crate::support::{
    fleet::{Fleet, PATIENCE},
    wait::within,
};

async fn fleet_behind_a_proxy() -> (Fleet, FaultProxy) {
    let mut fleet = Fleet::start().await;
    let proxy = FaultProxy::before(&fleet.db.url).await.unwrap();
    let url = proxy.url_through(&fleet.db.url).unwrap();
    fleet.set("DATABASE_URL", &url);
    several_turns(&fleet, 1, Duration::ZERO).await;
    (fleet, proxy)
}

#[tokio::test]
async fn claim_with_lost_reply_is_released_and_finished() {
    let (fleet, proxy) = fleet_behind_a_proxy().await;
    let id = fleet.submit("d", json!({})).await;
    let lost = proxy.lose_reply("from longhaul_claim(", "SELECT 1\0");
    let started = Instant::now();
    let worker = worker(&fleet);
    lost.lost().await.unwrap();
    let row = fleet.ended(id).await;
    let took = started.elapsed();
    assert_eq!(row["status"], "FINISHED");
    assert_eq!(fleet.event_kinds(id).await, ["submitted", "claimed", "released", "claimed", "turn", "finished"]);
    assert!(took < Duration::from_secs(30), "finished after {took:?}");
    assert_eq!(count_of(&fleet, "select count(*) from executions where crash_count > 0").await, 0);
    println!("a lost claim was finished {:.1} s after the worker's start", took.as_secs_f64());
    worker.drain().await;
}

#[tokio::test]
async fn next_holder_of_a_lost_claims_slot_is_announced() {
    let (mut fleet, proxy) = fleet_behind_a_proxy().await;
    fleet.store.put_limit(Some(fleet.tenant), &LimitKey::parse("definition:d").unwrap(), 1).await.unwrap();
    fleet.set("LONGHAUL__WORKER__SWEEP_TICK_SECONDS", "60");
    let first = fleet.submit("d", json!({})).await;
    let lost = proxy.lose_reply("from longhaul_claim(", "SELECT 1\0");
    let holder = worker(&fleet);
    lost.lost().await.unwrap();

    // The second execution is in a queue without a live worker when it gets the slot, so only the announcement tells
    // of it.
    let second = NewExecution { queue: "other".into(), ..fleet.new_execution("d", json!({})).await };
    let second = fleet.submit_new(second).await;
    fleet.set("LONGHAUL__WORKER__QUEUES", "other");
    let other = worker(&fleet);
    fleet.until(second, "it waits for the slot", |row| row["wait_reason"] == "concurrency_limit").await;
    other.kill().await;
    let mut looks = fleet.redis.hear_looks().await;
    let told = async { while !looks.next().await.contains(&second) {} };
    within("the second is announced", PATIENCE, told).await;
    assert_eq!(fleet.row(second).await["wait_reason"], "worker");
    assert_eq!(fleet.event_kinds(first).await[..3], ["submitted", "claimed", "released"]);
    drop(holder);
}

#[tokio::test]
async fn record_with_lost_reply_repeats_no_call() {
    let (fleet, proxy) = fleet_behind_a_proxy().await;
    // A turn with a call: the last turn is committed with the end of the lease.
    several_turns(&fleet, 2, Duration::ZERO).await;
    let lost = proxy.lose_reply("set lease_write = item.write", "UPDATE 1\0");
    let id = fleet.submit("d", json!({})).await;
    let worker = worker(&fleet);
    lost.lost().await.unwrap();
    finishes_as_if_nothing_had_happened(&fleet, id, &["turn", "call", "turn"]).await;
    worker.drain().await;
}

#[tokio::test]
async fn conclusion_with_lost_reply_ends_execution_once() {
    let (fleet, proxy) = fleet_behind_a_proxy().await;
    let lost = proxy.lose_reply("set status = v.status, wait_reason = v.wait_reason", "UPDATE 1\0");
    let id = fleet.submit("d", json!({})).await;
    let worker = worker(&fleet);
    lost.lost().await.unwrap();
    finishes_as_if_nothing_had_happened(&fleet, id, &["turn"]).await;
    // The attempt has learned of its end too, so a drain has nothing to wait for.
    worker.drain().await;
}

async fn finishes_as_if_nothing_had_happened(fleet: &Fleet, id: ExecutionId, steps: &[&str]) {
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(fleet.event_kinds(id).await, [&["submitted", "claimed"], steps, &["finished"]].concat());
    assert_eq!(count_of(fleet, "select count(*) from attempts").await, 1);
    no_call_is_repeated(fleet);
}
