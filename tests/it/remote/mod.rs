//! Workers over HTTP (docs/reference/worker-protocol.md), played by a few lines that send its requests.

mod asks;
mod bounds;
mod hostile;
mod leases;
mod models;

use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use crate::{
    support::api::{Answer, Caller, EVERYDAY},
    wires::Bench,
};

/// A worker: its caller, and the path of its requests.
pub(crate) struct Remote {
    pub(crate) caller: Caller,
    pub(crate) path: String,
    pub(crate) id: String,
}

/// A lease.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) claimed: Value,
}

/// A key of a step.
pub(crate) fn key(n: u8) -> String {
    hex::encode([n; 32])
}

pub(crate) fn registration(definitions: &[&str]) -> Value {
    let definitions: Vec<_> = definitions.iter().map(|key| json!({ "key": key })).collect();
    json!({
        "protocol": 1, "host": "h", "pid": 1, "build": "b1", "queues": ["default"], "concurrency": 10,
        "definitions": definitions,
    })
}

/// A caller of the organisation that may run workers.
pub(crate) async fn operator(bench: &Bench, org: &str) -> Caller {
    let scopes = [EVERYDAY, &[Scope::WorkersRun, Scope::ApprovalsDecide]].concat();
    bench.api.caller(org, &scopes).await
}

impl Remote {
    pub(crate) async fn register(caller: &Caller, body: &Value) -> Self {
        let answer = caller.post("/v1/workers", body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let id = answer.body["worker"].as_str().unwrap().to_owned();
        Self { caller: caller.clone(), path: format!("/v1/workers/{id}"), id }
    }

    /// A worker of `acme` for the definition `task`.
    pub(crate) async fn start(bench: &Bench) -> Self {
        Self::register(&operator(bench, "acme").await, &registration(&["task"])).await
    }

    pub(crate) async fn post(&self, what: &str, body: &Value) -> Answer {
        self.caller.post(&format!("{}/{what}", self.path), body).await
    }

    pub(crate) async fn submit(&self, input: Value) -> String {
        let answer = self.caller.post("/v1/executions", &json!({ "definition": "task", "input": input })).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn claim(&self, max: u32, seconds: u32) -> Vec<Held> {
        let answer = self.post("claim", &json!({ "max": max, "wait_seconds": seconds })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        held(&answer.body)
    }

    pub(crate) async fn claim_one(&self) -> Held {
        let mut held = self.claim(1, 10).await;
        assert_eq!(held.len(), 1, "nothing to claim");
        held.remove(0)
    }

    /// Ends a lease. Returns the result.
    pub(crate) async fn end(&self, held: &Held, outcome: Value) -> Value {
        let end = json!({ "execution": held.id, "token": held.token, "outcome": outcome });
        let answer = self.post("ends", &json!({ "ends": [end] })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["results"][0].clone()
    }

    pub(crate) async fn finish(&self, held: &Held, output: Value) {
        let result = self.end(held, json!({ "type": "finish", "output": output })).await;
        assert_eq!(result["status"], "FINISHED", "{result}");
    }

    /// Records steps. Returns the result.
    pub(crate) async fn write(&self, held: &Held, number: i32, steps: Value) -> Value {
        let write = json!({ "execution": held.id, "token": held.token, "write": number, "steps": steps });
        let answer = self.post("writes", &json!({ "writes": [write] })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["results"][0].clone()
    }

    pub(crate) async fn heartbeat(&self, held: &[&Held]) -> Answer {
        let held: Vec<_> = held.iter().map(|one| json!({ "execution": one.id, "token": one.token })).collect();
        self.post("heartbeat", &json!({ "held": held, "was_awake": true })).await
    }

    pub(crate) async fn execution(&self, id: &str) -> Value {
        self.caller.get(&format!("/v1/executions/{id}")).await.body
    }

    /// A request about an execution that it holds.
    pub(crate) async fn about(&self, held: &Held, what: &str, mut body: Value) -> Answer {
        body["token"] = json!(held.token);
        self.post(&format!("executions/{}/{what}", held.id), &body).await
    }
}

/// The leases of a claim's answer.
fn held(answer: &Value) -> Vec<Held> {
    let text = |of: &Value| of.as_str().unwrap().to_owned();
    let executions = answer["executions"].as_array().unwrap().iter();
    executions.map(|one| Held { id: text(&one["id"]), token: text(&one["token"]), claimed: one.clone() }).collect()
}

pub(crate) fn done(seq: i32, n: u8, result: Value) -> Value {
    json!({ "seq": seq, "key": key(n), "name": format!("step {n}"), "state": "done", "result": result })
}
