//! Instances: one plan over many items.

use longhaul_sdk::{AgentSpec, spec::InstancesSpec};
use longhaul_testkit::model::reply_events;
use serde_json::json;

use super::kit::{Run, Stage, referring, work};

#[tokio::test]
async fn instance_sees_its_own_and_shared_writes_c58() {
    let stage = Stage::default();
    let agent = AgentSpec { instances: Some(InstancesSpec { over: Some("orders".into()) }), ..referring() };
    let input = json!({"currency": "EUR", "orders": [{"total": 10}, {"total": 20, "currency": "SEK"}]});
    let reply = reply_events([
        work("global", json!({"value": 3, "_outputPath": "†state.rate"})),
        work("one", json!({"value": "†input.total", "_outputPath": "†state.total", "_instance": "①"})),
        work("reads_one", json!({"value": ["†state.total", "†state.rate", "†input.currency"], "_instance": "①"})),
        work("reads_two", json!({"value": ["†state.rate", "†input.currency", "†input.total"], "_instance": "②"})),
        work("blind", json!({"value": "†state.total", "_instance": "②"})),
        work("outside", json!({"value": "†state.total"})),
        work("nobody", json!({"value": 1, "_instance": "③"})),
    ]);
    let run = Run::start(&agent, &stage, input, [reply]).await;
    run.finished().await;
    assert_eq!(stage.arguments("reads_one")["value"], json!([10, 3, "EUR"]));
    assert_eq!(stage.arguments("reads_two")["value"], json!([3, "SEK", 20]));
    let told = run.told(1);
    for unseen in ["blind", "outside"] {
        assert_eq!((stage.runs(unseen), told.error(unseen).as_deref()), (0, Some("unresolved_reference")));
    }
    assert_eq!(told.error("nobody").as_deref(), Some("structural"));
    assert!(told.message("nobody").contains("the input has 2, ① to ②"), "{}", told.message("nobody"));
}
