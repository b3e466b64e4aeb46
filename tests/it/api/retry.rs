//! `POST /v1/executions/{id}/retry`: a person's retry continues from the journal.

use longhaul_domain::ExecutionId;
use longhaul_sdk::failure::{Failure, FailureCode};
use longhaul_store::history::journal::StepKind::{Correction, Prompt, Turn, Verdict};
use longhaul_store::history::journal::StepState;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::api::{TestApi, invoice};
use crate::support::leases::{Conclusion, TestWorker, step, write};

/// Makes an execution with two turns and a verdict on the second, failed with `code`.
async fn failed(api: &TestApi, code: FailureCode, is_spent: bool) -> ExecutionId {
    let id = api.submit_with(json!({"metadata": {"order": "7"}})).await;
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.id, id);
    let steps = vec![step(1, Prompt, "system"), step(2, Turn, "turn one"), step(3, Correction, "again")];
    worker.record(write(&claimed, 1, steps)).await.unwrap();
    let mut second = step(4, Turn, "turn two");
    if is_spent {
        second.state = StepState::Spent;
    }
    worker.record(write(&claimed, 2, vec![second, step(5, Verdict, "bad")])).await.unwrap();
    worker.end(&claimed, Conclusion::Fail { failure: Failure::permanent(code, "no") }).await.unwrap();
    id
}

async fn steps(api: &TestApi, id: &str) -> Vec<Value> {
    let page = api.acme.get(&format!("/v1/executions/{id}/steps?include=body")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    page.body["steps"].as_array().unwrap().clone()
}

fn column<'a>(steps: &'a [Value], name: &str) -> Vec<&'a Value> {
    steps.iter().map(|step| &step[name]).collect()
}

#[tokio::test]
async fn retry_copies_the_journal_up_to_the_failure() {
    let api = TestApi::start().await;
    // The second turn is spent, so it is not copied; the verdict after it is.
    let id = failed(&api, FailureCode::MODEL_API_ERROR, true).await;
    let answer = api.acme.send(Method::POST, &format!("/v1/executions/{id}/retry"), None, &[]).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(answer.body["retry_of"], id.to_string());
    assert_eq!(answer.body["status"], "PENDING");
    assert_eq!(answer.body["metadata"], json!({"order": "7"}));
    assert_eq!(answer.body["input"], json!({"text": "total 12"}));
    let new = answer.body["id"].as_str().unwrap();
    let copied = steps(&api, new).await;
    assert_eq!(column(&copied, "seq"), [1, 2, 3, 5]);
    assert!(column(&copied, "attempt").iter().all(|attempt| **attempt == 0));
    assert_eq!(copied[1]["messages"], json!(["turn one"]), "messages live with their execution");
    assert_eq!(copied[1]["body"], "turn one");
    assert_eq!(api.woken("default").await.last().unwrap().to_string(), new);
    let events = api.acme.get(&format!("/v1/executions/{new}/events")).await;
    assert_eq!(events.body["events"][0]["data"], json!({"retry_of": id.to_string(), "copied_steps": 4}));
    let origin = api.acme.get(&format!("/v1/executions/{id}")).await;
    assert_eq!(origin.body["status"], "FAILED", "the failed one stays as it is");
    assert_eq!(column(&steps(&api, &id.to_string()).await, "state"), ["live", "live", "live", "spent", "live"]);
}

#[tokio::test]
async fn retry_asks_again_for_a_refused_answer() {
    let api = TestApi::start().await;
    let id = failed(&api, FailureCode::MAX_RETRIES_EXCEEDED, false).await;
    let answer = api.acme.send(Method::POST, &format!("/v1/executions/{id}/retry"), None, &[]).await;
    let copied = steps(&api, answer.body["id"].as_str().unwrap()).await;
    assert_eq!(column(&copied, "seq"), [1, 2, 3]);
}

#[tokio::test]
async fn retry_from_scratch_copies_no_steps() {
    let api = TestApi::start().await;
    let id = failed(&api, FailureCode::TOOL_FAILED, false).await;
    let path = format!("/v1/executions/{id}/retry");
    let answer = api.acme.post(&path, &json!({"from_scratch": true})).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(steps(&api, answer.body["id"].as_str().unwrap()).await, Vec::<Value>::new());
    let refused = api.acme.post(&path, &json!({"from_scratch": "yes", "x": 1})).await;
    assert_eq!((refused.error(), refused.paths()), ((422, "invalid_request"), vec!["/from_scratch", "/x"]));
}

#[tokio::test]
async fn idempotency_key_allows_one_retry() {
    let api = TestApi::start().await;
    let id = failed(&api, FailureCode::TOOL_FAILED, false).await;
    let path = format!("/v1/executions/{id}/retry");
    let key = [("idempotency-key", "again")];
    let first = api.acme.post_as(&path, &json!({}), &key).await;
    let second = api.acme.post_as(&path, &json!({}), &key).await;
    assert_eq!((first.status, second.status), (201, 200));
    assert_eq!(first.body["id"], second.body["id"]);
    let other = api.acme.post_as(&path, &json!({"from_scratch": true}), &key).await;
    assert_eq!(other.error(), (409, "idempotency_key_reused"));
    assert_eq!(api.count().await, 2);
}

#[tokio::test]
async fn only_failed_executions_can_be_retried() {
    let api = TestApi::start().await;
    let id = api.submit().await;
    let path = format!("/v1/executions/{id}/retry");
    assert_eq!(api.acme.post(&path, &json!({})).await.error(), (409, "execution_not_failed"));
    let worker = TestWorker::start(&api.store).await;
    worker.finish(&worker.claim_one().await).await.unwrap();
    assert_eq!(api.acme.post(&path, &json!({})).await.error(), (409, "execution_not_failed"));
    assert_eq!(api.count().await, 1);
}

#[tokio::test]
async fn retry_keeps_its_version_unless_latest_is_requested() {
    let api = TestApi::start().await;
    let id = failed(&api, FailureCode::TOOL_FAILED, false).await;
    let path = format!("/v1/executions/{id}/retry");
    let mut second = invoice();
    second.prompt = Some("Read {{ input.text }}".into());
    api.store.put_shared_definition(&second).await.unwrap();
    assert_eq!(api.acme.post(&path, &json!({})).await.body["definition"]["version"], 1);
    // The API sees its own put at once, but a put of another process within a second.
    crate::support::wait::eventually("the new version", crate::support::wait::SOON, async || {
        let latest = api.acme.post(&format!("{path}?version=latest"), &json!({})).await;
        if latest.body["definition"]["version"] == 2 { Ok(()) } else { Err(latest.text) }
    })
    .await;
    second.input_schema = json!({"type": "object", "required": ["currency"]});
    assert_eq!(api.acme.put("/v1/definitions/invoice", &serde_json::to_value(&second).unwrap()).await.status, 201);
    let refused = api.acme.post(&format!("{path}?version=latest"), &json!({})).await;
    assert_eq!((refused.error(), refused.paths()), ((422, "invalid_input"), vec!["/input/currency"]));
}
