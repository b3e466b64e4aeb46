//! The way of one execution, and every row of the validator loop.

use longhaul_sdk::DefinitionSpec;
use serde_json::json;

use crate::support::{
    fleet::{Fleet, agent},
    llm::reply_text,
};

#[tokio::test]
async fn an_execution_goes_from_pending_to_finished() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    fleet.llm.push(reply_text(r#"{"total": 7}"#));
    let id = fleet.submit("d", json!({"text": "seven"})).await;
    assert_eq!(fleet.row(id).await["status"], "PENDING");
    let worker = fleet.worker();
    let row = fleet.ended(id).await;
    assert_eq!(row["status"], "FINISHED");
    assert_eq!(row["output"], json!({"total": 7}));
    assert_eq!(fleet.event_kinds(id).await, ["submitted", "claimed", "turn", "finished"]);
    assert_eq!(fleet.steps(id).await, [("prompt".into(), "live".into()), ("turn".into(), "live".into())]);
    worker.drain().await;
}
