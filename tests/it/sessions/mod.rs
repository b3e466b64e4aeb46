//! Sessions: conversations whose messages become executions, served by an API and workers over one database.

pub(crate) mod chat;
mod erasure;
mod events;
mod frames;
mod kills;
mod limits;
mod policies;
mod prompt_cache;
mod retention;
mod set_up;
mod transcript;

use longhaul_api::ApiOptions;
use longhaul_domain::ExecutionId;
use longhaul_sdk::AgentSpec;
use serde_json::{Value, json};

use crate::support::{
    api::{Answer, TestApi},
    fleet::{Fleet, agent},
    wait::eventually,
};

/// An API and a fleet over one database, with the agent `a`.
pub(crate) struct Service {
    pub(crate) fleet: Fleet,
    pub(crate) api: TestApi,
}

impl Service {
    async fn start() -> Self {
        Self::of(Fleet::start().await, agent("a")).await
    }

    pub(crate) async fn of(fleet: Fleet, agent: AgentSpec) -> Self {
        Self::limited(fleet, agent, 0).await
    }

    /// A service that runs at most `max_running_sessions` of an agent and tenant at a time; 0 is unlimited.
    pub(crate) async fn limited(fleet: Fleet, agent: AgentSpec, max_running_sessions: u32) -> Self {
        fleet.store.put_shared_agent(&agent).await.unwrap();
        let options = ApiOptions { max_running_sessions, ..ApiOptions::default() };
        let api = TestApi::over(&fleet, options).await;
        Self { fleet, api }
    }

    /// Begins a session; returns its path.
    pub(crate) async fn begin(&self, more: Value) -> String {
        let mut body = json!({ "agent": "a" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.api.acme.post("/v1/sessions", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        format!("/v1/sessions/{}", answer.body["id"].as_str().unwrap())
    }

    pub(crate) async fn send(&self, session: &str, message: &str) -> Answer {
        self.send_with(session, json!({ "message": message })).await
    }

    async fn send_with(&self, session: &str, body: Value) -> Answer {
        self.api.acme.post(&format!("{session}/messages"), &body).await
    }

    /// Sends a message and waits for the end of its execution.
    pub(crate) async fn say(&self, session: &str, message: &str) -> Value {
        let answer = self.send(session, message).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        self.fleet.ended(id_of(&answer)).await
    }

    /// Roles and texts of the transcript.
    pub(crate) async fn transcript(&self, session: &str) -> Vec<String> {
        let page = self.api.acme.get(&format!("{session}/messages?limit=500")).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let line = |entry: &Value| {
            let message = &entry["message"];
            let text = match message["parts"].as_array() {
                Some(parts) => parts.iter().filter_map(Value::as_str).collect::<String>(),
                None => message["text"].as_str().unwrap_or_default().to_owned(),
            };
            format!("{}: {text}", message["role"].as_str().unwrap())
        };
        page.body["messages"].as_array().unwrap().iter().map(line).collect()
    }

    async fn status(&self, session: &str) -> Value {
        self.api.acme.get(session).await.body["status"].clone()
    }

    pub(crate) async fn until_idle(&self, session: &str) {
        eventually("the session is idle", crate::support::fleet::PATIENCE, || async {
            let status = self.status(session).await;
            if status == "idle" { Ok(()) } else { Err(status) }
        })
        .await;
    }
}

pub(crate) fn id_of(answer: &Answer) -> ExecutionId {
    answer.body["execution_id"].as_str().unwrap().parse().unwrap()
}
