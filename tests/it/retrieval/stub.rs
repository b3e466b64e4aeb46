//! A stub server for any protocol: it records its requests and answers as the test says.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio_util::sync::{CancellationToken, DropGuard};

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// Method and URI: `POST /path?query`.
    pub(super) to: String,
    /// The header `authorization` or `api-key`.
    pub(super) key: Option<String>,
    /// Null without a JSON body.
    pub(super) body: Value,
}

/// Answer of the stub.
pub(super) enum Answer {
    Json(u16, Value),
    Text(u16, String),
    /// No answer, ever.
    Silence,
    /// JSON, once the barrier is complete.
    Together(Arc<Barrier>, Value),
    /// Half of a body, then a closed connection.
    Cut,
}

pub(crate) struct Stub {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    _stop: DropGuard,
}

impl Stub {
    pub(super) async fn start(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&seen), Arc::new(answer));
        let handle = move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            let header = |name: &str| Some(headers.get(name)?.to_str().unwrap().to_owned());
            let request = Seen {
                to: format!("{method} {uri}"),
                key: header("authorization").or_else(|| header("api-key")),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            let answered = answer(&request);
            kept.lock().unwrap().push(request);
            respond(answered)
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let server = axum::serve(listener, Router::new().fallback(handle));
        // Not a graceful shutdown, because a silent answer never ends.
        tokio::spawn(async move {
            tokio::select! {
                served = server.into_future() => served.unwrap(),
                () = stopped => {}
            }
        });
        Self { url, seen, _stop: stop.drop_guard() }
    }

    /// Answers every request with `embeddings`.
    pub(crate) async fn embedder() -> Self {
        Self::start(|request| Answer::Json(200, embeddings(&request.body))).await
    }

    /// As [`embedder`](Self::embedder), but texts with `word` are never answered.
    pub(crate) async fn embedder_silent_on(word: &'static str) -> Self {
        Self::start(move |request| {
            let is_late = request.body["input"].to_string().contains(word);
            if is_late { Answer::Silence } else { Answer::Json(200, embeddings(&request.body)) }
        })
        .await
    }

    /// As [`embedder`](Self::embedder), but requests with `word` are refused.
    pub(crate) async fn embedder_refusing(word: &'static str) -> Self {
        Self::start(move |request| {
            let is_refused = request.body["input"].to_string().contains(word);
            let refusal = json!({"error": {"message": "the input is not accepted"}});
            if is_refused { Answer::Json(400, refusal) } else { Answer::Json(200, embeddings(&request.body)) }
        })
        .await
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Number of embedded texts.
    pub(crate) fn embedded(&self) -> usize {
        self.seen().iter().map(|request| request.body["input"].as_array().map_or(0, Vec::len)).sum()
    }
}

/// Answer of an embeddings endpoint. The vector counts each of these words, so that texts with common words are
/// near.
pub(super) fn embeddings(body: &Value) -> Value {
    const WORDS: [&str; 8] = ["leave", "notice", "parental", "salary", "month", "office", "kitchen", "period"];
    let vector = |text: &str| {
        let text = text.to_lowercase();
        // The last number keeps the vector from being zero.
        let counts = WORDS.iter().map(|word| text.matches(word).count() as f64).chain([0.1]);
        counts.collect::<Vec<f64>>()
    };
    let inputs = body["input"].as_array().unwrap().iter().map(|text| vector(text.as_str().unwrap()));
    let data: Vec<Value> = inputs.enumerate().map(|(n, vector)| json!({"index": n, "embedding": vector})).collect();
    json!({"object": "list", "data": data, "model": body["model"]})
}

async fn respond(answer: Answer) -> Response {
    let status = |code: u16| StatusCode::from_u16(code).unwrap();
    match answer {
        Answer::Json(code, body) => (status(code), axum::Json(body)).into_response(),
        Answer::Text(code, body) => (status(code), body).into_response(),
        Answer::Together(barrier, body) => {
            barrier.wait().await;
            axum::Json(body).into_response()
        }
        Answer::Silence => std::future::pending().await,
        Answer::Cut => {
            let halves = [Ok(Bytes::from_static(b"{\"data\"")), Err(std::io::Error::other("cut"))];
            Body::from_stream(futures::stream::iter(halves)).into_response()
        }
    }
}
