//! A model endpoint over real HTTP that speaks both wire formats, streaming and not, and replies as a scenario says.
//!
//! A strict server validates every request: one that breaks the protocol (a result that answers no call, a call
//! without its result, a part above its cap, no `Idempotency-Key`) is answered 400, and the test fails when the
//! server is dropped. A server under load keeps nothing of its requests and parses no body by itself.

mod cache_stub;
mod captured;
mod render;
mod reply;
mod switch;
mod validate;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

pub use self::{
    cache_stub::{CacheCount, CacheStub},
    captured::{Captured, Dialect},
    reply::{
        Ev, Gate, Reply, ev_call, ev_call_raw, ev_cut, ev_end, ev_error, ev_finish, ev_gate, ev_raw, ev_stall, ev_text,
    },
    reply::{reply_bytes, reply_calls, reply_events, reply_hang_up, reply_silent, reply_status, reply_text},
    switch::Switch,
    validate::Caps,
};
use crate::http_server::{HttpServer, Protocol, StartError};

type Counter = Arc<dyn Fn(&Captured) -> u64 + Send + Sync>;
type Answerer = Arc<dyn Fn(Captured) -> BoxFuture<'static, Reply> + Send + Sync>;

#[derive(Default)]
struct Inner {
    queue: VecDeque<Reply>,
    answerer: Option<Answerer>,
    counter: Option<Counter>,
    cache: Option<CacheStub>,
    requests: Vec<Captured>,
    calls: BTreeMap<String, usize>,
    answered: BTreeMap<String, usize>,
    in_flight: usize,
    violations: Vec<String>,
    caps: Caps,
}

/// State of the server, shared with its handlers.
#[derive(Clone, Default)]
struct Shared {
    inner: Arc<Mutex<Inner>>,
    switch: Switch,
    is_lax: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// The server; stops on drop.
pub struct ModelServer {
    server: HttpServer,
    shared: Shared,
}

/// A server to start: strict, over HTTP/1.1, without replies.
#[derive(Default)]
pub struct ModelServerBuilder {
    protocol: Protocol,
    shared: Shared,
}

impl ModelServerBuilder {
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Neither validates nor keeps requests, for scenarios with so many that they would cost time and memory.
    #[must_use]
    pub fn lax(mut self) -> Self {
        self.shared.is_lax = true;
        self
    }

    /// Lets the switch concern only requests for this model.
    #[must_use]
    pub fn unsteady(mut self, model: &str) -> Self {
        self.shared.switch = Switch::of(model);
        self
    }

    /// As [`ModelServer::answer_later`].
    #[must_use]
    pub fn answer_later<F>(self, answerer: impl Fn(Captured) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.shared.answer_later(answerer);
        self
    }

    /// Starts the server on a free port of the loopback.
    ///
    /// # Errors
    /// No port can be bound, or no certificate can be made.
    pub async fn start(self) -> Result<ModelServer, StartError> {
        let Self { protocol, shared } = self;
        let router = Router::new()
            .route("/v1/chat/completions", post(handle))
            .route("/v1/messages", post(handle))
            .route("/v1/messages/count_tokens", post(count))
            .with_state(shared.clone());
        Ok(ModelServer { server: HttpServer::start(protocol, router).await?, shared })
    }
}

impl Shared {
    fn answer_later<F>(&self, answerer: impl Fn(Captured) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.lock().answerer = Some(Arc::new(move |captured| answerer(captured).boxed()));
    }
}

impl ModelServer {
    /// Starts a strict server over HTTP/1.1.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    #[must_use]
    pub fn builder() -> ModelServerBuilder {
        ModelServerBuilder::default()
    }

    /// Base URL, without `/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The self-signed certificate to trust, in PEM; `None` without TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.server.certificate()
    }

    /// Makes the model unavailable and available again.
    #[must_use]
    pub fn switch(&self) -> Switch {
        self.shared.switch.clone()
    }

    /// Appends a reply to the queue, of which each request takes the first.
    pub fn push(&self, reply: Reply) {
        self.shared.lock().queue.push_back(reply);
    }

    /// Answers requests that find the queue empty.
    pub fn answer_with(&self, answerer: impl Fn(&Captured) -> Reply + Send + Sync + 'static) {
        self.shared.answer_later(move |captured| ready(answerer(&captured)));
    }

    /// Answers requests that find the queue empty, each once its future is done.
    pub fn answer_later<F>(&self, answerer: impl Fn(Captured) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.shared.answer_later(answerer);
    }

    /// Serves the endpoint that counts the tokens of a prompt.
    pub fn count_with(&self, counter: impl Fn(&Captured) -> u64 + Send + Sync + 'static) {
        self.shared.lock().counter = Some(Arc::new(counter));
    }

    /// Reports the tokens that the provider's prompt cache would read and write.
    #[must_use]
    pub fn cache_prompts(&self) -> CacheStub {
        self.shared.lock().cache.get_or_insert_default().clone()
    }

    /// Replaces the size caps of requests.
    pub fn set_caps(&self, caps: Caps) {
        self.shared.lock().caps = caps;
    }

    /// Every request so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Captured> {
        self.shared.lock().requests.clone()
    }

    /// Number of requests by `Idempotency-Key`.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, usize> {
        self.shared.lock().calls.clone()
    }

    /// Number of requests by `Idempotency-Key` whose whole reply was handed to the connection. Only 2xx replies
    /// count, and only those that end well.
    #[must_use]
    pub fn answered(&self) -> BTreeMap<String, usize> {
        self.shared.lock().answered.clone()
    }

    /// Number of requests that are neither answered nor abandoned.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.lock().in_flight
    }

    /// Violations of the protocol so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// Takes the violations, for a test that provokes them.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().violations)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
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
    let counter = shared.lock().counter.clone();
    match counter {
        Some(counter) => Json(json!({ "input_tokens": counter(&captured) })).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn handle(State(shared): State<Shared>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let captured = Captured::new(uri.path(), headers, body);
    let (planned, in_flight) = shared.admit(&captured);
    let switch = Some(&shared.switch).filter(|switch| switch.concerns(&captured.raw));
    let reply = match planned {
        _ if switch.is_some_and(Switch::is_away) => reply_status(500, "the model is away"),
        Planned::Reply(reply) => reply,
        Planned::Asks(answerer) => answerer(captured.clone()).await,
    };
    let cache = shared.lock().cache.clone();
    let reply = match cache {
        Some(cache) if reply.is_answer() => reply.cached(cache.serve(&captured)),
        Some(_) | None => reply,
    };
    render::response(reply, &captured, in_flight, switch.cloned()).await
}

enum Planned {
    Reply(Reply),
    Asks(Answerer),
}

impl Shared {
    /// Notes a request and plans its reply. A lax server notes nothing.
    fn admit(&self, captured: &Captured) -> (Planned, Option<InFlight>) {
        let mut inner = self.lock();
        let (mut violations, mut in_flight) = (Vec::new(), None);
        if !self.is_lax {
            let key = captured.idempotency_key.clone().unwrap_or_default();
            *inner.calls.entry(key.clone()).or_default() += 1;
            inner.in_flight += 1;
            in_flight = Some(InFlight { shared: self.clone(), key });
            inner.requests.push(captured.clone());
            violations = validate::violations(captured, &inner.caps);
        }
        let number = inner.requests.len();
        let planned = match (violations.first(), inner.queue.pop_front(), &inner.answerer) {
            (Some(violation), _, _) => {
                Planned::Reply(reply_status(400, &format!("the fake model refuses: {violation}")))
            }
            (None, Some(reply), _) => Planned::Reply(reply),
            (None, None, Some(answerer)) => Planned::Asks(answerer.clone()),
            (None, None, None) => {
                let unexpected = format!("request {number} was not expected");
                inner.violations.push(unexpected.clone());
                Planned::Reply(reply_status(400, &unexpected))
            }
        };
        inner.violations.extend(violations.into_iter().map(|violation| format!("request {number}: {violation}")));
        (planned, in_flight)
    }
}
