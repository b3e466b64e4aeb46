//! Postgres answers a reservation after the lease is over, and another worker has ended the execution.

use std::time::Duration;

use longhaul_sdk::spec::BudgetSpec;
use longhaul_testkit::proxy::FaultProxy;
use serde_json::json;

use super::{count_of, several_turns, worker};
use crate::{
    support::{fleet::PATIENCE, wait::eventually},
    worker::journal::quick_fleet,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_reservation_asks_no_model() {
    let mut fleet = quick_fleet().await;
    let direct = fleet.db.url.clone();
    let proxy = FaultProxy::before(&direct).await.unwrap();
    fleet.set("DATABASE_URL", &proxy.url_through(&direct).unwrap());
    several_turns(&fleet, 1, Duration::ZERO).await;
    let mut new = fleet.new_execution("d", json!({})).await;
    new.budget = Some(BudgetSpec { max_model_calls: Some(5), ..BudgetSpec::default() });
    let id = fleet.submit_new(new).await;
    let mut reply = proxy.hold_reply("from longhaul_reserve(", "SELECT 1\0");
    let late = worker(&fleet);
    reply.held().await.unwrap();
    // Its renewals are cut off, too, so that the worker does not hear of its death.
    proxy.black_hole();
    fleet.set("DATABASE_URL", &direct);
    let other = worker(&fleet);
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(fleet.llm.requests().len(), 1);

    // The reply passes at once; a renewal must log in first.
    drop(reply);
    proxy.pass().await.unwrap();
    eventually("the late worker has a new identity", PATIENCE, async || {
        let alive = count_of(&fleet, "select count(*) from workers where dead_at is null").await;
        if alive == 2 { Ok(()) } else { Err(alive) }
    })
    .await;
    late.drain().await;
    assert_eq!(fleet.llm.requests().len(), 1, "the model was asked without a lease");
    other.drain().await;
}
