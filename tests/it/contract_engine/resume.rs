//! A worker is killed in the middle of a run, and another one resumes it.

use longhaul_domain::noted::CallList;
use longhaul_testkit::model::Gate;
use serde_json::{Value, json};

use super::kit::{Answer, Engine, calls, printed, says, searching};

fn retrieving(engine: &Engine) -> longhaul_contract::ContractRun {
    let mut run = engine.run_with_tools();
    run.retrieval = searching(
        json!({"index": "kb", "query": "q", "top_k": 1, "search_method": "keyword", "query_preprocessing": "none",
            "filters": {}}),
    );
    // Without an id of its own, the model's name is looked up at the provider.
    run.platform_runtime.0["capabilities"]["llm_inference"]["default_resource"] =
        json!({"id": "model.default", "name": "M"});
    let hit = json!({"document_id": "d", "text": "t", "metadata_json": "{}", "_additional": {"id": "u", "score": "1"}});
    engine.vectors.at("/v1/graphql", Answer::Json(200, json!({"data": {"Get": {"Kb": [hit]}}})));
    engine.model.at("/v1/models", Answer::Json(200, json!({"data": [{"id": "M"}]})));
    run
}

fn python() -> Value {
    calls(&[("c1", "python_exec", r#"{"code":"x"}"#)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_run_repeats_no_recorded_step() {
    let engine = Engine::start().await;
    let run = retrieving(&engine);
    let gate = Gate::new();
    engine.model.json(python());
    engine.sandbox.json(printed("4\n"));
    engine.model.push(Answer::Behind(gate.clone(), Box::new(Answer::Json(200, says("too late")))));
    let first = engine.fleet.worker();
    let id = engine.submit(&run, json!({"prompt": "p"})).await;
    gate.reached().await;
    first.kill().await;
    engine.fleet.bury_workers().await;
    // The provider now serves another model, but the resumed run does not ask again.
    engine.model.at("/v1/models", Answer::Json(200, json!({"data": [{"id": "another"}]})));
    engine.model.json(says("done"));
    let _second = engine.fleet.worker();
    let ended = engine.ended(id).await;
    assert_eq!(ended.text(), "done");
    assert_eq!(
        (engine.vectors.seen().len(), engine.sandbox.seen().len(), engine.model.seen_at("/v1/models")),
        (1, 1, 1)
    );
    let asked: Vec<_> = engine.model.seen().into_iter().filter(|seen| seen.path == "/v1/chat/completions").collect();
    assert_eq!(asked.len(), 3, "only the turn without an answer was asked again");
    assert_eq!(asked[1].raw, asked[2].raw, "with the same words");
    assert_eq!(asked[1].header("idempotency-key"), asked[2].header("idempotency-key"));
    assert_eq!(asked[2].body()["model"], "M");
    assert_eq!(ended.statuses(CallList::ModelCalls), [200, 200]);
    assert_eq!(ended.statuses(CallList::ToolCalls), [200]);
    assert_eq!(ended.items(CallList::RetrievalCalls).len(), 1);
    assert!(!engine.fleet.event_kinds(id).await.contains(&"journal_diverged".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncertain_call_is_reported_not_repeated() {
    let engine = Engine::start().await;
    let gate = Gate::new();
    engine.model.json(python());
    engine.sandbox.push(Answer::Behind(gate.clone(), Box::new(Answer::Json(200, printed("4\n")))));
    let first = engine.fleet.worker();
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    gate.reached().await;
    first.kill().await;
    engine.fleet.bury_workers().await;
    engine.model.json(says("who knows"));
    let _second = engine.fleet.worker();
    let ended = engine.ended(id).await;
    assert_eq!(ended.text(), "who knows");
    assert_eq!((engine.sandbox.seen().len(), engine.model.seen().len()), (1, 2));
    let item: Value = serde_json::from_str(ended.items(CallList::ToolCalls)[0]).unwrap();
    assert_eq!((&item["error"]["code"], &item["arguments"]), (&json!("outcome_unknown"), &json!({"code": "x"})));
    let told = engine.model.seen()[1].body()["input"][3]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), item["error"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_after_third_answer_ends_the_same() {
    let engine = Engine::start().await;
    let gate = Gate::new();
    for at in 0..3 {
        engine.model.json(python());
        engine.sandbox.json(printed(&at.to_string()));
    }
    // The kill comes between the recorded third answer and the end of the run.
    let stop = gate.clone();
    let first = engine.fleet.worker_with(|worker| {
        worker.probe(longhaul_agent::probe::Probe::armed(move |point, _| {
            let stop = stop.clone();
            Box::pin(async move {
                if point == longhaul_agent::probe::Point::BeforeConclusion {
                    stop.pass().await;
                }
            })
        }))
    });
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    gate.reached().await;
    first.kill().await;
    engine.fleet.bury_workers().await;
    let _second = engine.fleet.worker();
    let ended = engine.ended(id).await;
    assert_eq!((ended.code(), &ended.detail["reason"]), ("EXEC_INTERNAL_ERROR", &json!("tool_round_limit_exceeded")));
    assert_eq!((engine.model.seen().len(), engine.sandbox.seen().len()), (3, 2));
    assert_eq!(ended.statuses(CallList::ModelCalls), [200, 200, 200]);
}
