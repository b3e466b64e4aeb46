//! Callers that stop waiting, runs that overlap, and workers that die.

use std::time::Duration;

use longhaul_testkit::model::Gate;
use serde_json::json;

use super::kit::{Backend, PATH, TOKEN, named};
use crate::{
    contract_engine::kit::{Answer, says},
    support::{
        fleet::PATIENCE,
        process::WorkerProcess,
        wait::{SOON, eventually, within},
    },
};

/// Read timeout of the reference's client, which does not retry.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// docs/reference/agent-execution-contract.md describes what this client sees.
#[tokio::test]
async fn timed_out_client_finds_its_execution_by_request_id() {
    let backend = Backend::start().await;
    let gate = Gate::new();
    backend.engine.model.push(Answer::Behind(gate.clone(), Box::new(Answer::Json(200, says("slow, but there")))));
    let _worker = backend.worker();
    let request = backend.client.post(format!("{}{PATH}", backend.url)).timeout(READ_TIMEOUT);
    let request =
        request.header("x-service-token", TOKEN).header("x-request-id", "impatient").header("connection", "close");
    let gone = request.json(&backend.request(json!({}))).send().await.unwrap_err();
    assert!(gone.is_timeout(), "{gone}");
    // The run continues. It is found by its request id and read by its execution id.
    let found = backend.get(&format!("{PATH}?request_id=impatient")).await;
    let id = found.body["executions"][0]["id"].as_str().unwrap().to_owned();
    within("the model is asked", SOON, gate.reached()).await;
    assert_eq!(backend.record(&id).await["status"], "running");
    gate.open();
    let record = eventually("the run ends", PATIENCE, async || {
        let record = backend.record(&id).await;
        if record["finished_at"].is_string() { Ok(record) } else { Err(record.to_string()) }
    })
    .await;
    assert_eq!(
        (record["status"].as_str(), record["result"]["output_text"].as_str()),
        (Some("succeeded"), Some("slow, but there"))
    );
    assert_eq!(backend.engine.model.seen().len(), 1, "asked once");
    assert_eq!(backend.count().await, 1);
}

#[tokio::test]
async fn expired_wait_answers_201_with_the_current_record() {
    let backend = Backend::start().await;
    let queued = backend.post_as(&backend.request(json!({})), &[("prefer", "wait=0")]).await;
    assert_eq!((queued.status, queued.body["execution"]["status"].as_str()), (201, Some("queued")), "{}", queued.text);
    let execution = &queued.body["execution"];
    assert_eq!(execution.as_object().unwrap().len(), 11);
    for key in ["started_at", "finished_at", "result", "error"] {
        assert!(execution[key].is_null(), "{key}");
    }
    backend.engine.model.json(says("later"));
    let _worker = backend.worker();
    let id = named(&queued);
    backend.fleet().ended(id).await;
    assert_eq!(backend.record(&id.to_string()).await["result"]["output_text"], "later");
}

#[tokio::test]
async fn four_runs_overlap_on_one_worker() {
    let backend = Backend::start().await;
    let gates: Vec<Gate> = (0..4).map(|_| Gate::new()).collect();
    for gate in &gates {
        backend.engine.model.push(Answer::Behind(gate.clone(), Box::new(Answer::Json(200, says("done")))));
    }
    let _worker = backend.worker();
    let body = backend.request(json!({}));
    let asks = futures::future::join_all(gates.iter().map(|_| backend.post(&body)));
    let all_at_once = async {
        // All runs stand at their gates at the same time; runs one after another would never get there.
        for gate in &gates {
            within("every run reaches its model", PATIENCE, gate.reached()).await;
        }
        for gate in &gates {
            gate.open();
        }
    };
    let (answers, ()) = tokio::join!(asks, all_at_once);
    for answer in answers {
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
}

#[tokio::test]
async fn killed_worker_leaves_nothing_running() {
    let backend = Backend::start().await;
    let gate = Gate::new();
    backend.engine.model.push(Answer::Behind(gate.clone(), Box::new(Answer::Json(200, says("never read")))));
    backend.engine.model.push(Answer::Json(200, says("from the second worker")));
    let mut first = WorkerProcess::start(backend.fleet()).await;
    let body = backend.request(json!({}));
    let killed = async {
        within("the model is asked", PATIENCE, gate.reached()).await;
        let id = backend.fleet().json("select to_jsonb(id) from executions").await;
        assert_eq!(backend.record(id.as_str().unwrap()).await["status"], "running");
        first.kill();
        WorkerProcess::start(backend.fleet()).await
    };
    let (answer, _second) = tokio::join!(backend.post(&body), killed);
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(answer.body["execution"]["result"]["output_text"], "from the second worker");
    gate.open();
    let running = backend.fleet().json("select to_jsonb(count(*)) from executions where finished_at is null").await;
    assert_eq!(running, json!(0));
}
