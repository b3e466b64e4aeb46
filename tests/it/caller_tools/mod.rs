//! Tools that the caller runs: an execution waits for results that its caller posts over HTTP.

mod approvals;
mod chat;
mod deaths;
mod declared;
mod refusals;
mod results;
pub(crate) mod sdks;

use std::{collections::BTreeMap, time::Duration};

use longhaul_api::ApiOptions;
use longhaul_domain::ExecutionId;
use longhaul_sdk::{AgentSpec, spec::ToolRef};
use longhaul_testkit::model::{Reply, ev_call, reply_events, reply_text};
use serde_json::{Value, json};

use crate::support::{
    api::{Answer, TestApi},
    fleet::{Fleet, FleetWorker, PATIENCE, agent},
    wait::eventually,
};

const DAY: Duration = Duration::from_secs(86_400);

/// A call of the model: id, tool and arguments.
type Call = (&'static str, &'static str, Value);

/// A tool that the caller runs, for three days.
fn by_caller(name: &str) -> Value {
    json!({
        "name": name, "runs": "caller", "description": "Does its work at the caller's.", "expires_seconds": 3 * 86_400,
        "parameters": {"type": "object", "properties": {"value": {}}, "additionalProperties": false},
    })
}

fn tool(of: Value) -> ToolRef {
    serde_json::from_value(of).unwrap()
}

/// An API and a fleet over one database, with an agent whose caller runs `open_file` and `pick`.
pub(crate) struct Bench {
    pub(crate) fleet: Fleet,
    api: TestApi,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::of(AgentSpec { tools: ["open_file", "pick"].map(|name| tool(by_caller(name))).to_vec(), ..agent("a") })
            .await
    }

    async fn of(agent: AgentSpec) -> Self {
        let mut fleet = Fleet::start().await;
        for (name, seconds) in [("LEASE", "2"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
            fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
        }
        fleet.store.put_shared_agent(&agent).await.unwrap();
        let api = TestApi::over(&fleet, ApiOptions::default()).await;
        Self { fleet, api }
    }

    /// The model replies with `calls` and, when their results are there, with an answer.
    pub(crate) fn script(&self, calls: Vec<Call>) {
        self.fleet.llm.answer_with(move |request| -> Reply {
            match request.replies() {
                0 => reply_events(calls.iter().map(|(id, name, arguments)| ev_call(id, name, arguments))),
                _ => reply_text("done"),
            }
        });
    }

    pub(crate) fn worker(&self) -> FleetWorker {
        self.fleet.worker()
    }

    async fn submit(&self) -> ExecutionId {
        self.submit_with(json!({})).await
    }

    async fn submit_with(&self, more: Value) -> ExecutionId {
        let mut body = json!({ "agent": "a", "input": {"prompt": "do it"} });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.api.acme.post("/v1/executions", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["id"].as_str().unwrap().parse().unwrap()
    }

    async fn get(&self, id: ExecutionId) -> Value {
        let answer = self.api.acme.get(&format!("/v1/executions/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    /// Calls that wait for the caller, by id.
    async fn pending(&self, id: ExecutionId) -> BTreeMap<String, Value> {
        let execution = self.get(id).await;
        let calls = execution["requires_action"].as_array().cloned().unwrap_or_default();
        calls.iter().map(|call| (call["call_id"].as_str().unwrap().to_owned(), call.clone())).collect()
    }

    /// Waits until the execution is parked with these calls, and no others, for the caller.
    async fn waits_for(&self, id: ExecutionId, calls: &[&str]) -> BTreeMap<String, Value> {
        eventually("the execution waits for its caller", PATIENCE, async || {
            let (row, pending) = (self.fleet.row(id).await, self.pending(id).await);
            let is_parked = row["wait_reason"] == "input";
            if is_parked && pending.keys().eq(calls.iter().copied()) {
                Ok(pending)
            } else {
                Err(format!("{pending:?} {row}"))
            }
        })
        .await
    }

    async fn post(&self, id: ExecutionId, results: Value) -> Answer {
        let path = format!("/v1/executions/{id}/tool-results");
        self.api.acme.post(&path, &json!({ "results": results })).await
    }

    /// Results in the model's last request, in their order.
    fn results(&self) -> Vec<(String, String)> {
        let requests = self.fleet.llm.requests();
        let last = requests.last().expect("a request");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let results = last.messages().iter().filter(|message| message["role"] == "tool");
        results.map(|message| (text(&message["tool_call_id"]), text(&message["content"]))).collect()
    }

    pub(crate) async fn finished(&self, id: ExecutionId) -> Value {
        let row = self.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
        row
    }
}

/// A result of a pending call.
fn output(call: &Value, output: Value) -> Value {
    json!({ "call_id": call["call_id"], "hash": call["hash"], "output": output })
}

fn error(call: &Value, error: &str) -> Value {
    json!({ "call_id": call["call_id"], "hash": call["hash"], "error": error })
}

/// Paths and codes of the refused results.
fn refused(answer: &Answer) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let errors = answer.body["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().map(|error| (text(&error["path"]), text(&error["code"]))).collect()
}
