//! Status events of a run for its followers.

use longhaul_contract::ContractRun;
use longhaul_domain::ExecutionId;
use longhaul_testkit::model::Gate;
use serde_json::{Value, json};

use super::kit::{Answer, Engine, calls, printed, says, searching};

async fn stages(engine: &Engine, id: ExecutionId) -> Vec<String> {
    let told: Vec<Value> =
        sqlx::query_scalar("select data from events where execution_id = $1 and kind = 'status' order by seq")
            .bind(id.0)
            .fetch_all(&engine.fleet.db.pool)
            .await
            .unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    told.iter().map(|of| format!("{} {} {}", text(&of["id"]), text(&of["kind"]), text(&of["state"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stage_starts_and_ends_with_one_id() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let mut run = ContractRun { stream: true, ..engine.run_with_tools() };
    run.retrieval = searching(
        json!({"index": "kb", "query": "q", "top_k": 1, "search_method": "keyword", "query_preprocessing": "none",
            "filters": {}}),
    );
    engine.vectors.at("/v1/graphql", Answer::Json(200, json!({"data": {"Get": {"Kb": []}}})));
    engine.model.json(calls(&[("c1", "python_exec", r#"{"code":"x"}"#), ("c2", "web_search", "{}")]));
    engine.model.json(says("x"));
    engine.sandbox.json(printed(""));
    engine.gateway.json(json!({"result": null, "error": {"code": "no"}}));
    let id = engine.submit(&run, json!({"prompt": "p"})).await;
    assert_eq!(engine.ended(id).await.text(), "x");
    let expected = [
        "retrieving retrieving running",
        "retrieving retrieving completed",
        "thinking thinking running",
        "thinking thinking completed",
        "connecting-1 connecting running",
        "connecting-1 connecting completed",
        "generating-1 generating running",
        "generating-1 generating completed",
        "tool-1-c1 running_tool running",
        "tool-1-c1 running_tool completed",
        "tool-1-c2 searching_web running",
        "tool-1-c2 searching_web failed",
        "connecting-2 connecting running",
        "connecting-2 connecting completed",
        "generating-2 generating running",
        "generating-2 generating completed",
    ];
    assert_eq!(stages(&engine, id).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_streamed_runs_emit_live_stages() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    for (stream, expected) in [(true, Some("generating-1 generating running")), (false, None)] {
        let gate = Gate::new();
        engine.model.push(Answer::Behind(gate.clone(), Box::new(Answer::Json(503, json!({})))));
        let id = engine.submit(&ContractRun { stream, ..engine.run() }, json!({"prompt": "p"})).await;
        gate.reached().await;
        assert_eq!(stages(&engine, id).await.last().map(String::as_str), expected, "while the model writes");
        gate.open();
        assert_eq!(engine.ended(id).await.code(), "EXEC_UPSTREAM_UNAVAILABLE");
        let last = stages(&engine, id).await.pop();
        assert_eq!(last, stream.then(|| "generating-1 generating failed".to_owned()));
    }
}
