//! The wires of other clients: runs over OpenAI's and Anthropic's APIs, over real HTTP, with a model server behind.

mod agui;
mod chat;
mod doors;
mod frameworks;
mod kills;
mod messages;
mod refusals;
mod responses;
mod runs;
mod socket;

use longhaul_api::ApiOptions;
use longhaul_domain::ExecutionId;
use longhaul_sdk::AgentSpec;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    api::{Answer, Caller, TestApi},
    fleet::{Fleet, FleetWorker, agent},
};

/// An API and a fleet over one database, with the agent `helper`.
pub(crate) struct Bench {
    pub(crate) fleet: Fleet,
    pub(crate) api: TestApi,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::of(agent("helper")).await
    }

    pub(crate) async fn of(agent: AgentSpec) -> Self {
        let mut fleet = Fleet::start().await;
        for (name, seconds) in [("LEASE", "2"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
            fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
        }
        fleet.store.put_shared_agent(&agent).await.unwrap();
        let api = TestApi::over(&fleet, ApiOptions::default()).await;
        Self { fleet, api }
    }

    pub(crate) fn worker(&self) -> FleetWorker {
        self.fleet.worker()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.api.acme.post(path, &body).await
    }

    /// Requests that the model got.
    pub(crate) fn asked(&self) -> usize {
        self.fleet.llm.requests().len()
    }
}

/// The frames of a stream: event and data, the latter as text where it is no JSON.
pub(crate) fn frames(text: &str) -> Vec<(String, Value)> {
    let frame = |block: &str| {
        let line =
            |prefix: &str| block.lines().find_map(|line| line.strip_prefix(prefix)).unwrap_or_default().to_owned();
        let data = line("data: ");
        (line("event: "), serde_json::from_str(&data).unwrap_or(Value::String(data)))
    };
    text.split("\n\n").filter(|block| !block.trim().is_empty() && !block.starts_with(':')).map(frame).collect()
}

/// Sends a request with these headers and reads the answer to its end, whatever it is.
pub(crate) async fn send(caller: &Caller, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
    caller.send(Method::POST, path, Some(body.to_string()), headers).await
}

/// The execution in the id of an answer.
pub(crate) fn execution_of(id: &str) -> ExecutionId {
    let hex = id.split(['_', '-']).find(|part| part.len() == 32).unwrap();
    hex.parse().unwrap()
}

/// A function that the caller runs.
pub(crate) fn function(name: &str) -> Value {
    json!({
        "name": name, "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    })
}
