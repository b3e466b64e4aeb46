//! A worker over its memory limit claims nothing and stays alive (core-rules 5).

use longhaul_sdk::DefinitionSpec;
use longhaul_testkit::model::reply_text;
use serde_json::json;

use crate::support::{
    fleet::{Fleet, PATIENCE, agent},
    wait::eventually,
};

const LIMIT: &str = "LONGHAUL__WORKER__MEMORY_LIMIT_BYTES";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_over_memory_limit_claims_nothing() {
    let mut fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let id = fleet.submit("d", json!({})).await;
    fleet.set(LIMIT, "1");
    let full = fleet.worker();
    // The worker reports its memory with the renewal of its lease, seconds after its first claim would have been.
    eventually("the worker tells its memory", PATIENCE, async || {
        let told = fleet.json("select to_jsonb(count(*)) from worker_heartbeats where memory_bytes > 1").await;
        if told == 1 { Ok(()) } else { Err(told) }
    })
    .await;
    let row = fleet.row(id).await;
    assert_eq!((&row["status"], &row["wait_reason"]), (&json!("PENDING"), &json!("worker")), "{row}");

    fleet.set(LIMIT, "0");
    let other = fleet.worker();
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("FINISHED"), &json!(1)), "{row}");
    other.drain().await;
    full.drain().await;
}
