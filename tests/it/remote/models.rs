//! Model calls of executions that workers over HTTP hold: recorded once for their execution, within its budget.

use longhaul_testkit::model::reply_text;
use serde_json::{Value, json};

use super::{Held, Remote};
use crate::{support::api::Answer, wires::Bench};

async fn ask(worker: &Remote, held: &Held, text: &str) -> Answer {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": text }] });
    let headers = [("longhaul-execution", &*held.id), ("longhaul-lease", &*held.token)];
    worker.caller.post_as("/v1/chat/completions", &body, &headers).await
}

fn said(answer: &Answer) -> &Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    &answer.body["choices"][0]["message"]["content"]
}

#[tokio::test]
async fn next_attempt_pays_for_no_answered_call() {
    let bench = Bench::start().await;
    let _models = bench.worker();
    bench.fleet.llm.answer_with(|request| reply_text(&request.last_said()));
    let worker = Remote::start(&bench).await;
    worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    assert_eq!(said(&ask(&worker, &held, "plan").await), "plan");
    assert_eq!(said(&ask(&worker, &held, "plan").await), "plan");
    worker.end(&held, json!({ "type": "release" })).await;
    let held = worker.claim_one().await;
    for text in ["plan", "plan", "write"] {
        assert_eq!(said(&ask(&worker, &held, text).await), text);
    }
    assert_eq!(bench.asked(), 3);
    worker.finish(&held, json!(1)).await;
    assert_eq!(ask(&worker, &held, "late").await.status, 400);
}

#[tokio::test]
async fn calls_spend_the_budget_of_their_execution() {
    let bench = Bench::start().await;
    let _models = bench.worker();
    bench.fleet.llm.answer_with(|request| reply_text(&request.last_said()));
    let worker = Remote::start(&bench).await;
    let body = json!({ "definition": "task", "budget": { "max_model_calls": 1, "on_exhausted": "fail" } });
    let submitted = worker.caller.post("/v1/executions", &body).await;
    assert_eq!(submitted.status, 201, "{}", submitted.text);
    let held = worker.claim_one().await;
    let first = ask(&worker, &held, "one").await;
    assert_eq!(first.status, 200, "{}", first.text);
    let refused = ask(&worker, &held, "two").await;
    assert!(refused.status >= 400 && refused.text.contains("budget"), "{}", refused.text);
    assert_eq!(bench.asked(), 1);
}

#[tokio::test]
async fn erasure_takes_the_calls_of_an_execution_along() {
    let bench = Bench::start().await;
    let _models = bench.worker();
    bench.fleet.llm.answer_with(|request| reply_text(&request.last_said()));
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    assert_eq!(said(&ask(&worker, &held, "secret").await), "secret");
    worker.finish(&held, json!(1)).await;
    let runs = worker.caller.get("/v1/runs").await;
    assert_eq!(runs.body["runs"], json!([]), "no run of a program");
    let erased = worker.caller.delete(&format!("/v1/executions/{id}/content")).await;
    assert_eq!(erased.body["executions"].as_array().map(Vec::len), Some(2), "{}", erased.text);
    let left = "select to_jsonb(count(*)) from execution_payloads where output::text like '%secret%'";
    assert_eq!(bench.fleet.json(left).await, 0);
}

#[tokio::test]
async fn run_of_an_execution_is_begun_by_no_caller() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let begun = worker.caller.post("/v1/runs", &json!({ "key": format!("execution:{id}") })).await;
    assert_eq!((begun.error(), begun.text.contains("/key")), ((422, "invalid_request"), true), "{}", begun.text);
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    let run = format!("execution:{id}");
    let headers = [("longhaul-run", &*run), ("longhaul-attempt", "1")];
    assert_eq!(worker.caller.post_as("/v1/chat/completions", &body, &headers).await.status, 400);
}

#[tokio::test]
async fn definition_of_a_remote_worker_is_a_model() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let body = json!({ "model": "definition:task", "input": "{\"n\": 1}", "background": true });
    let created = worker.caller.post("/v1/responses", &body).await;
    assert_eq!((created.status, &created.body["status"]), (200, &json!("queued")), "{}", created.text);
    let held = worker.claim_one().await;
    assert_eq!(held.claimed["input"], json!({ "n": 1 }));
    worker.finish(&held, json!({ "sum": 2 })).await;
    let path = format!("/v1/responses/{}", created.body["id"].as_str().unwrap());
    let found = worker.caller.get(&path).await;
    assert_eq!(found.body["status"], "completed", "{}", found.text);
    let text = found.body["output"][0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!({ "sum": 2 }), "{}", found.text);
}
