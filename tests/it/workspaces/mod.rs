//! Tools over the files of a workspace: a model server over HTTP, a worker, and a real sandbox.

mod escapes;
mod kills;
mod life;
mod tools;
mod wire;

use std::{collections::BTreeMap, sync::Arc};

use longhaul_api::ApiOptions;
use longhaul_domain::ExecutionId;
use longhaul_sdk::{AgentSpec, spec::ToolRef};
use longhaul_testkit::model::{Captured, reply_calls, reply_text};
use serde_json::{Value, json};

use crate::{
    sandbox::service::{As, Mode, Service, shared},
    support::{
        api::TestApi,
        fleet::{Fleet, agent},
    },
};

/// An API and a fleet over one database, with the agent `files` and a sandbox.
struct Bench {
    fleet: Fleet,
    api: TestApi,
    _sandbox: Arc<Service>,
}

/// The strongest sandbox of this machine; `None` if it allows none.
async fn sandbox() -> Option<Arc<Service>> {
    for mode in [Mode::Namespaces, Mode::Landlock] {
        if let Some(service) = shared(mode, As::Self_).await {
            return Some(service);
        }
    }
    None
}

/// An agent with these entries as tools.
fn with_tools(key: &str, tools: impl IntoIterator<Item = Value>) -> AgentSpec {
    let tools = tools.into_iter().map(|tool| serde_json::from_value::<ToolRef>(tool).unwrap()).collect();
    AgentSpec { tools, ..agent(key) }
}

fn files_agent(key: &str) -> AgentSpec {
    with_tools(key, ["bash", "read_file", "write_file", "edit_file", "list_files"].map(|name| json!(name)))
}

impl Bench {
    async fn start() -> Option<Self> {
        Self::of(files_agent("files")).await
    }

    async fn of(agent: AgentSpec) -> Option<Self> {
        let sandbox = sandbox().await?;
        let mut fleet = Fleet::start().await;
        fleet.set("LONGHAUL__SANDBOX__URL", &sandbox.url);
        // Sessions that were idle for days would be remembered, by a call of the model that no script expects.
        fleet.set("LONGHAUL__MEMORY__ENABLED", "false");
        fleet.store.put_shared_agent(&agent).await.unwrap();
        let options = ApiOptions { has_sandbox: true, max_running_sessions: 0, ..ApiOptions::default() };
        let api = TestApi::over(&fleet, options).await;
        Some(Self { fleet, api, _sandbox: sandbox })
    }

    /// The model makes these calls, turn by turn, and then answers.
    fn script<const N: usize>(&self, turns: [Vec<(&str, Value)>; N]) {
        for calls in turns {
            self.fleet.llm.push(reply_calls(calls));
        }
        self.fleet.llm.push(reply_text("done"));
    }

    async fn submit(&self) -> ExecutionId {
        let answer =
            self.api.acme.post("/v1/executions", &json!({"agent": "files", "input": {"prompt": "work"}})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["id"].as_str().unwrap().parse().unwrap()
    }

    /// Runs the calls, turn by turn; returns their results.
    async fn run<const N: usize>(&self, turns: [Vec<(&str, Value)>; N]) -> Vec<String> {
        self.script(turns);
        let id = self.submit().await;
        let row = self.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
        self.results()
    }

    /// Results of calls in the model's last request.
    fn results(&self) -> Vec<String> {
        results(self.fleet.llm.requests().last().unwrap())
    }
}

/// Results of the calls in a request.
fn results(request: &Captured) -> Vec<String> {
    let results = request.messages().iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn bash(command: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": command }))
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({ "path": path }))
}

fn list(path: &str) -> (&'static str, Value) {
    ("list_files", json!({ "path": path }))
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": content }))
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("edit_file", json!({ "path": path, "old": old, "new": new }))
}

/// The `error` of a result.
fn error(result: &str) -> Value {
    let error: BTreeMap<String, Value> = serde_json::from_str(result).unwrap_or_else(|_| panic!("no error: {result}"));
    error["error"].clone()
}
