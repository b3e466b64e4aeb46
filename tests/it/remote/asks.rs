//! What executions of workers over HTTP ask for: approvals, answers, children, time and signals.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Held, Remote, key};
use crate::wires::Bench;

const HOUR: Duration = Duration::from_secs(3_600);

async fn park(worker: &Remote, held: &Held, reason: &str, seconds: Option<u32>) -> Value {
    let wake_seq = held.claimed["wake_seq"].clone();
    worker.end(held, json!({ "type": "park", "reason": reason, "seconds": seconds, "wake_seq": wake_seq })).await
}

async fn signal(worker: &Remote, id: &str, payload: Value, idempotency: &str) -> u16 {
    let body = json!({ "name": "paid", "payload": payload });
    let path = format!("/v1/executions/{id}/signals");
    worker.caller.post_as(&path, &body, &[("idempotency-key", idempotency)]).await.status
}

async fn signals(worker: &Remote, held: &Held, after: i64) -> Vec<Value> {
    let path = format!("{}/executions/{}/signals?token={}&name=paid&after={after}", worker.path, held.id, held.token);
    let answer = worker.caller.get(&path).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["signals"].as_array().unwrap().clone()
}

#[tokio::test]
async fn signal_wakes_once_and_is_kept_in_order() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    assert_eq!(signal(&worker, &id, json!(1), "a").await, 201, "before it has begun");
    let held = worker.claim_one().await;
    assert_eq!(signals(&worker, &held, 0).await[0]["payload"], 1);
    let first = signals(&worker, &held, 0).await[0]["seq"].as_i64().unwrap();
    assert_eq!(signals(&worker, &held, first).await.len(), 0);
    assert_eq!(park(&worker, &held, "signal", None).await["wait_reason"], "input");
    assert_eq!(worker.claim(1, 0).await.len(), 0);
    for _ in 0..2 {
        signal(&worker, &id, json!({ "n": 2 }), "b").await;
    }
    let held = worker.claim_one().await;
    let found = signals(&worker, &held, first).await;
    assert_eq!((found.len(), &found[0]["payload"]), (1, &json!({ "n": 2 })));
    worker.finish(&held, json!(1)).await;
    assert_eq!(signal(&worker, &id, json!(3), "c").await, 409);
}

#[tokio::test]
async fn signal_between_look_and_park_is_not_lost() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    assert_eq!(signals(&worker, &held, 0).await.len(), 0);
    signal(&worker, &id, json!(1), "a").await;
    assert_eq!(park(&worker, &held, "signal", None).await["wait_reason"], "worker");
    assert_eq!(worker.claim_one().await.id, id);
}

#[tokio::test]
async fn signal_does_not_begin_what_is_not_due() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let later = bench.api.store.now().await.unwrap() + HOUR;
    let body = json!({ "definition": "task", "run_at": later });
    let id = worker.caller.post("/v1/executions", &body).await.body["id"].as_str().unwrap().to_owned();
    signal(&worker, &id, json!(1), "a").await;
    assert_eq!(worker.claim(1, 0).await.len(), 0);
    assert_eq!(worker.execution(&id).await["wait_reason"], "scheduled");
}

#[tokio::test]
async fn sleep_costs_nothing_and_ends() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    assert_eq!(park(&worker, &held, "sleep", Some(3_600)).await["wait_reason"], "scheduled");
    assert_eq!(worker.claim(1, 0).await.len(), 0);
    bench.fleet.advance(Duration::from_secs(3_601)).await;
    let _sweeper = bench.worker();
    assert_eq!(worker.claim_one().await.id, id);
}

#[tokio::test]
async fn decision_of_a_person_wakes_and_is_found() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    let ask = json!({ "kind": "approval", "key": key(1), "name": "refund", "arguments": { "amount": 5 }, "text": "?" });
    let asked = worker.about(&held, "requests", ask.clone()).await;
    assert_eq!(asked.body["state"], "waiting", "{}", asked.text);
    assert_eq!(park(&worker, &held, "approval", None).await["wait_reason"], "approval");
    let approval = format!("/v1/approvals/{}", asked.body["id"].as_str().unwrap());
    let hash = worker.caller.get(&approval).await.body["hash"].clone();
    let decider = super::operator(&bench, "acme").await;
    let decision = json!({ "decision": "approve", "hash": hash });
    let answer = decider.post(&format!("{approval}/decision"), &decision).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let held = worker.claim_one().await;
    assert_eq!((&held.id, &worker.about(&held, "requests", ask).await.body["state"]), (&id, &json!("approved")));
}

#[tokio::test]
async fn children_are_started_once_and_wake_their_parent() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let parent = worker.claim_one().await;
    let start = json!({ "children": [{ "key": key(1), "definition": "task", "input": { "of": id } }] });
    let started = worker.about(&parent, "children", start.clone()).await;
    assert_eq!(started.status, 200, "{}", started.text);
    let again = worker.about(&parent, "children", start).await;
    assert_eq!(again.body["children"][0]["id"], started.body["children"][0]["id"]);
    let child_id = started.body["children"][0]["id"].clone();
    let wait = json!({ "key": key(2), "children": [child_id] });
    let waited = worker.about(&parent, "children/wait", wait.clone()).await;
    assert_eq!(waited.body["children"][0]["status"], "PENDING", "{}", waited.text);
    park(&worker, &parent, "children", None).await;
    let child = worker.claim_one().await;
    assert_eq!((&json!(child.id), &child.claimed["root"], &child.claimed["depth"]), (&child_id, &json!(id), &json!(1)));
    worker.finish(&child, json!({ "said": "x" })).await;
    let parent = worker.claim_one().await;
    let found = worker.about(&parent, "children/wait", wait).await;
    assert_eq!(found.body["children"][0]["output"], json!({ "said": "x" }), "{}", found.text);
}
