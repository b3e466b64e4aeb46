//! A model endpoint over real HTTP that speaks both wire formats, streaming and not, replies as a test scripts, and
//! validates every request.
//!
//! A request that breaks the protocol (a result that answers no call, a call without its result, a part above its
//! cap, no `Idempotency-Key`) is answered 400, and the test fails when the server is dropped.

mod captured;
mod render;
mod reply;
mod validate;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

pub(crate) use self::{
    captured::Captured,
    reply::{
        Ev, Gate, Reply, ev_call, ev_call_raw, ev_cut, ev_end, ev_error, ev_finish, ev_gate, ev_raw, ev_stall, ev_text,
    },
    reply::{reply_calls, reply_events, reply_silent, reply_status, reply_text},
    validate::Caps,
};

type Counter = Box<dyn Fn(&Captured) -> u64 + Send + Sync>;
type Answerer = Box<dyn Fn(&Captured) -> Reply + Send + Sync>;

#[derive(Default)]
struct Inner {
    queue: VecDeque<Reply>,
    answerer: Option<Answerer>,
    counter: Option<Counter>,
    requests: Vec<Captured>,
    calls: BTreeMap<String, usize>,
    answered: BTreeMap<String, usize>,
    in_flight: usize,
    violations: Vec<String>,
    caps: Caps,
}

/// State of the server, shared with its handlers.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Inner>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server; stops on drop.
pub(crate) struct FakeLlm {
    address: SocketAddr,
    shared: Shared,
    task: JoinHandle<()>,
}

impl FakeLlm {
    /// Starts a server on a free loopback port.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared::default();
        let router = Router::new()
            .route("/v1/chat/completions", post(handle))
            .route("/v1/messages", post(handle))
            .route("/v1/messages/count_tokens", post(count))
            .layer(DefaultBodyLimit::disable())
            .with_state(shared.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared, task }
    }

    /// Base URL, without `/v1`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Appends a reply to the queue, of which each request takes the first.
    pub(crate) fn push(&self, reply: Reply) {
        self.shared.lock().queue.push_back(reply);
    }

    /// Answers requests that find the queue empty.
    pub(crate) fn answer_with(&self, answerer: impl Fn(&Captured) -> Reply + Send + Sync + 'static) {
        self.shared.lock().answerer = Some(Box::new(answerer));
    }

    /// Serves the endpoint that counts the tokens of a prompt.
    pub(crate) fn count_with(&self, counter: impl Fn(&Captured) -> u64 + Send + Sync + 'static) {
        self.shared.lock().counter = Some(Box::new(counter));
    }

    /// Replaces the size caps of requests.
    pub(crate) fn set_caps(&self, caps: Caps) {
        self.shared.lock().caps = caps;
    }

    /// Every request so far, in order of arrival.
    pub(crate) fn requests(&self) -> Vec<Captured> {
        self.shared.lock().requests.clone()
    }

    /// Number of requests by `Idempotency-Key`.
    pub(crate) fn calls(&self) -> BTreeMap<String, usize> {
        self.shared.lock().calls.clone()
    }

    /// Number of requests by `Idempotency-Key` whose whole reply was handed to the connection. Only 2xx replies
    /// count, and only those that end well.
    pub(crate) fn answered(&self) -> BTreeMap<String, usize> {
        self.shared.lock().answered.clone()
    }

    /// Number of requests that are neither answered nor abandoned.
    pub(crate) fn in_flight(&self) -> usize {
        self.shared.lock().in_flight
    }

    /// Violations of the protocol so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// Takes the violations, for a test that provokes them.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().violations)
    }
}

impl Drop for FakeLlm {
    fn drop(&mut self) {
        self.task.abort();
        let violations = self.violations();
        assert!(
            std::thread::panicking() || violations.is_empty(),
            "requests to the model broke the protocol:\n{}",
            violations.join("\n")
        );
    }
}

/// Counts a request as in flight for as long as it, or its response, lives; as answered when told so.
struct InFlight {
    shared: Shared,
    key: String,
}

impl InFlight {
    fn answered(&self) {
        *self.shared.lock().answered.entry(self.key.clone()).or_default() += 1;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.lock().in_flight -= 1;
    }
}

async fn count(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let captured = Captured::new("/v1/messages", headers, body);
    let counted = shared.lock().counter.as_ref().map(|counter| counter(&captured));
    match counted {
        Some(tokens) => Json(json!({ "input_tokens": tokens })).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn handle(State(shared): State<Shared>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let captured = Captured::new(uri.path(), headers, body);
    let (reply, in_flight) = {
        let mut inner = shared.lock();
        let key = captured.idempotency_key.clone().unwrap_or_default();
        *inner.calls.entry(key.clone()).or_default() += 1;
        inner.in_flight += 1;
        inner.requests.push(captured.clone());
        let number = inner.requests.len();
        let violations = validate::violations(&captured, &inner.caps);
        let reply = match (violations.first(), inner.queue.pop_front(), &inner.answerer) {
            (Some(violation), _, _) => reply_status(400, &format!("the fake model refuses: {violation}")),
            (None, Some(reply), _) => reply,
            (None, None, Some(answerer)) => answerer(&captured),
            (None, None, None) => {
                let unexpected = format!("request {number} was not expected");
                inner.violations.push(unexpected.clone());
                reply_status(400, &unexpected)
            }
        };
        inner.violations.extend(violations.into_iter().map(|violation| format!("request {number}: {violation}")));
        drop(inner);
        (reply, InFlight { shared: shared.clone(), key })
    };
    render::response(reply, &captured, in_flight).await
}
