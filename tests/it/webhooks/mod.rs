//! Webhooks, delivered over HTTP to receivers that fail in every way, on a clock that the tests move.

mod failing;
mod requests;
mod shares;
mod told;
mod verifiers;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use longhaul_api::ApiOptions;
use longhaul_domain::ExecutionId;
use longhaul_webhooks::WebhookOptions;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::support::{api::TestApi, fleet::PATIENCE, wait::eventually};

const DAY: f64 = 86_400.0;

/// Delivers to this machine, and waits for no answer for long.
const OPTIONS: WebhookOptions = WebhookOptions {
    allow_private: true,
    timeout: Duration::from_secs(20),
    patience: Duration::from_secs(5 * 86_400),
    at_once: 32,
};

/// A request as a receiver got it.
#[derive(Debug, Clone)]
struct Received {
    headers: HeaderMap,
    text: String,
    body: Value,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    fn id(&self) -> &str {
        self.header("webhook-id")
    }

    fn execution(&self) -> ExecutionId {
        self.body["data"]["execution_id"].as_str().unwrap().parse().unwrap()
    }
}

/// How a receiver answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Status(u16),
    /// Never.
    Hangs,
}

/// A receiver of webhooks.
struct Receiver {
    url: String,
    answer: Arc<Mutex<Answer>>,
    received: Arc<Mutex<Vec<Received>>>,
    _server: AbortOnDropHandle<()>,
}

impl Receiver {
    async fn start() -> Self {
        let answer = Arc::new(Mutex::new(Answer::Status(200)));
        let received = Arc::new(Mutex::new(Vec::new()));
        let state = (Arc::clone(&answer), Arc::clone(&received));
        let router = Router::new().route("/{*path}", post(receive)).with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, answer, received, _server: AbortOnDropHandle::new(server) }
    }

    fn answers(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits for so many requests.
    async fn until(&self, count: usize) -> Vec<Received> {
        eventually(&format!("{count} deliveries"), PATIENCE, async || {
            let received = self.received();
            if received.len() >= count { Ok(received) } else { Err(format!("{received:?}")) }
        })
        .await
    }
}

type Shared = (Arc<Mutex<Answer>>, Arc<Mutex<Vec<Received>>>);

async fn receive(State((answer, received)): State<Shared>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let text = String::from_utf8(body.to_vec()).unwrap();
    received.lock().unwrap().push(Received { headers, body: serde_json::from_str(&text).unwrap(), text });
    let answer = *answer.lock().unwrap();
    match answer {
        Answer::Status(status) => StatusCode::from_u16(status).unwrap(),
        Answer::Hangs => {
            std::future::pending::<()>().await;
            StatusCode::OK
        }
    }
}

async fn api() -> TestApi {
    TestApi::start_with(ApiOptions { private_webhooks: true, ..ApiOptions::default() }).await
}

/// Creates a webhook of `acme`; `more` are further fields. Returns its path and its secret.
async fn create(api: &TestApi, url: &str, more: Value) -> (String, String) {
    let mut body = json!({ "url": url });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = api.acme.post("/v1/webhooks", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let text = |field: &str| answer.body[field].as_str().unwrap().to_owned();
    (format!("/v1/webhooks/{}", text("id")), text("secret"))
}

/// Submits an execution and cancels it, which ends it.
async fn end_one(api: &TestApi) -> ExecutionId {
    let id = api.submit().await;
    let answer = api.acme.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // As a worker does after each end.
    api.store.tell_due_webhooks(1_000).await.unwrap();
    id
}

async fn show(api: &TestApi, webhook: &str) -> Value {
    let answer = api.acme.get(webhook).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

/// Deliveries of a webhook, oldest first.
async fn deliveries(api: &TestApi, webhook: &str) -> Vec<Value> {
    let answer = api.acme.get(&format!("{webhook}/deliveries?limit=200")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut deliveries = answer.body["deliveries"].as_array().unwrap().clone();
    deliveries.reverse();
    deliveries
}

/// Waits until all deliveries of a webhook are in this state.
async fn until_all(api: &TestApi, webhook: &str, state: &str) -> Vec<Value> {
    eventually(&format!("all deliveries {state}"), PATIENCE, async || {
        let deliveries = deliveries(api, webhook).await;
        let are_all = !deliveries.is_empty() && deliveries.iter().all(|one| one["state"] == state);
        if are_all { Ok(deliveries) } else { Err(format!("{deliveries:#?}")) }
    })
    .await
}

async fn shift(api: &TestApi, seconds: f64) {
    sqlx::query("update clock set shift = shift + $1 * interval '1 second'")
        .bind(seconds)
        .execute(&api.db.pool)
        .await
        .unwrap();
}
