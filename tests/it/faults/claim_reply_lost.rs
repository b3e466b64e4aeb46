//! The answer to a committed statement is lost on the way: the worker cannot know, and nothing may be stuck or done twice.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{count_of, no_call_is_repeated, several_turns, worker};
use crate::support::{chaos::ChaosProxy, fleet::Fleet};

async fn fleet_behind_a_proxy() -> (Fleet, ChaosProxy) {
    let mut fleet = Fleet::start().await;
    let proxy = ChaosProxy::before(&fleet.db.url).await;
    let url = proxy.url_through(&fleet.db.url);
    fleet.set("DATABASE_URL", &url);
    several_turns(&fleet, 1, Duration::ZERO).await;
    (fleet, proxy)
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_is_handed_back_and_finished_within_fifteen_seconds() {
    let (fleet, proxy) = fleet_behind_a_proxy().await;
    let id = fleet.submit("d", json!({})).await;
    let lost = proxy.lose_reply("from longhaul_claim(", "SELECT 1\0");
    let started = Instant::now();
    let worker = worker(&fleet);
    lost.lost().await;
    let row = fleet.ended(id).await;
    let took = started.elapsed();
    assert_eq!(row["status"], "FINISHED");
    assert_eq!(fleet.event_kinds(id).await, ["submitted", "claimed", "released", "claimed", "turn", "finished"]);
    assert!(took < Duration::from_secs(15), "finished after {took:?}");
    assert_eq!(count_of(&fleet, "select count(*) from executions where crash_count > 0").await, 0);
    println!("a lost claim was finished {:.1} s after the worker's start", took.as_secs_f64());
    worker.drain().await;
}

#[tokio::test]
async fn a_record_whose_reply_is_lost_is_recorded_once_and_its_call_is_not_repeated() {
    let (fleet, proxy) = fleet_behind_a_proxy().await;
    let lost = proxy.lose_reply("set lease_write = item.write", "UPDATE 1\0");
    let id = fleet.submit("d", json!({})).await;
    let worker = worker(&fleet);
    lost.lost().await;
    finishes_as_if_nothing_had_happened(&fleet, id).await;
    worker.drain().await;
}

#[tokio::test]
async fn a_conclusion_whose_reply_is_lost_ends_the_execution_once() {
    let (fleet, proxy) = fleet_behind_a_proxy().await;
    let lost = proxy.lose_reply("set status = v.status, wait_reason = v.wait_reason", "UPDATE 1\0");
    let id = fleet.submit("d", json!({})).await;
    let worker = worker(&fleet);
    lost.lost().await;
    finishes_as_if_nothing_had_happened(&fleet, id).await;
    // The attempt has heard of its end too: a drain has nothing to wait for.
    worker.drain().await;
}

async fn finishes_as_if_nothing_had_happened(fleet: &Fleet, id: longhaul_shared::domain::ExecutionId) {
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(fleet.event_kinds(id).await, ["submitted", "claimed", "turn", "finished"]);
    assert_eq!(count_of(fleet, "select count(*) from attempts").await, 1);
    no_call_is_repeated(fleet);
}
