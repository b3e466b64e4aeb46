//! A second tenant that does what hurts neighbours most: slow executions on all permits, webhooks, sessions and
//! schedules made and deleted under load, and texts erased at random. The audit of the first tenant must not notice it.

use std::time::Duration;

use anyhow::Context as _;
use futures::future::join;
use longhaul_guards::http;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    fleet::{Fleet, HOSTILE},
    load::ANSWER_LIMIT,
    model_server::SLOW_MARK,
    schedule::Random,
};

/// Submits for each of the tenant under audit.
const SUBMITS: f64 = 0.5;
/// Pause between two changes of webhooks, sessions and schedules.
const CHANGE_PAUSE: Duration = Duration::from_secs(1);
/// Most executions whose end is looked after at the end of the load.
const REMEMBERED: usize = 5_000;
/// Address that nothing listens on: its deliveries fail.
const NOWHERE: &str = "http://127.0.0.1:9/hook";

/// The hostile tenant's client.
pub(super) struct Hostile {
    client: reqwest::Client,
    url: String,
    key: String,
    rate: f64,
    random: Random,
}

impl Hostile {
    pub(super) fn new(fleet: &Fleet, rate: f64, seed: u64) -> anyhow::Result<Self> {
        let client = http::client(&http::HttpOptions::default()).context("build the HTTP client")?;
        let (url, key) = (fleet.url.clone(), fleet.hostile_key.clone());
        Ok(Self { client, url, key, rate, random: Random::new(seed) })
    }

    /// Attacks until `end`, then cancels what it has submitted.
    pub(super) async fn run(mut self, end: CancellationToken) {
        let submitted = {
            let (submits, changes) = (self.submits(end.clone()), self.changes(end.clone()));
            join(submits, changes).await.0
        };
        let mut cancelling = JoinSet::new();
        for id in submitted {
            // Some texts are erased instead: their executions must have ended for that, or are refused.
            let erases = self.random.below(4) == 0;
            let (method, path) = match erases {
                true => (Method::DELETE, format!("/v1/executions/{id}/content")),
                false => (Method::POST, format!("/v1/executions/{id}/cancel")),
            };
            let cancel = self.request(Method::POST, &format!("/v1/executions/{id}/cancel"));
            let first = self.request(method, &path);
            cancelling.spawn(async move {
                for request in [first, cancel] {
                    let _ = timeout(ANSWER_LIMIT, request.json(&json!({})).send()).await;
                }
            });
            while cancelling.len() > 32 {
                cancelling.join_next().await;
            }
        }
        cancelling.join_all().await;
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Option<Value> {
        let sent = timeout(ANSWER_LIMIT, self.request(method, path).json(body).send()).await.ok()?.ok()?;
        sent.json().await.ok()
    }

    /// Submits slow executions. Returns the ids of the newest.
    async fn submits(&self, end: CancellationToken) -> Vec<String> {
        let mut ids = Vec::new();
        let pause = Duration::from_secs_f64(1.0 / (self.rate * SUBMITS).max(0.5));
        while end.run_until_cancelled(sleep(pause)).await.is_some() {
            let body = json!({ "agent": HOSTILE, "input": { "prompt": SLOW_MARK } });
            let stored = self.send(Method::POST, "/v1/executions", &body).await;
            ids.extend(stored.and_then(|stored| stored["id"].as_str().map(str::to_owned)));
            if ids.len() > REMEMBERED {
                ids.remove(0);
            }
        }
        ids
    }

    /// Makes and deletes webhooks, sessions with a message, and schedules.
    async fn changes(&self, end: CancellationToken) {
        let mut round = 0_u64;
        while end.run_until_cancelled(sleep(CHANGE_PAUSE)).await.is_some() {
            round += 1;
            let hook = json!({ "url": NOWHERE, "types": ["execution.finished", "execution.failed"] });
            let hook = self.send(Method::POST, "/v1/webhooks", &hook).await;
            let session = self.send(Method::POST, "/v1/sessions", &json!({ "agent": HOSTILE })).await;
            let session = session.as_ref().and_then(|session| session["id"].as_str()).map(str::to_owned);
            if let Some(session) = &session {
                let message = json!({ "message": SLOW_MARK });
                self.send(Method::POST, &format!("/v1/sessions/{session}/messages"), &message).await;
                self.send(Method::POST, &format!("/v1/sessions/{session}/interrupt"), &json!({})).await;
            }
            let key = format!("hostile-{}", round % 8);
            let schedule = json!({
                "agent": HOSTILE, "input": { "prompt": SLOW_MARK }, "interval_seconds": 60,
                "overlap": "cancel_running",
            });
            self.send(Method::PUT, &format!("/v1/schedules/{key}"), &schedule).await;
            self.send(Method::POST, &format!("/v1/schedules/{key}/run"), &json!({})).await;
            self.send(Method::DELETE, &format!("/v1/schedules/{key}"), &json!({})).await;
            if let Some(hook) = hook.as_ref().and_then(|hook| hook["id"].as_str()) {
                self.send(Method::DELETE, &format!("/v1/webhooks/{hook}"), &json!({})).await;
            }
            if let Some(session) = session {
                self.send(Method::DELETE, &format!("/v1/sessions/{session}"), &json!({})).await;
            }
        }
    }
}
