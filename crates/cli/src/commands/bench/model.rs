//! The model of the benchmarks: an OpenAI-compatible server in this process that answers every request the same way, after
//! a delay, asking for as many rounds of tools as it is told.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, header::CONTENT_TYPE, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;

/// The tool that the rounds call.
pub(super) const TOOL: &str = "note";

/// How it answers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Answers {
    /// Before each answer.
    pub(super) delay: Duration,
    /// Rounds of one call each, before the answer that ends the execution.
    pub(super) rounds: usize,
}

/// The running server.
pub(super) struct Model {
    pub(super) url: String,
    seen: Arc<Seen>,
    _server: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    /// When each number was first asked about.
    first: Mutex<HashMap<u64, Instant>>,
}

impl Model {
    pub(super) async fn start(answers: Answers) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let seen = Arc::new(Seen::default());
        let server = tokio::spawn(serve(listener, answers, seen.clone()));
        Ok(Self { url, seen, _server: AbortOnDropHandle::new(server) })
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }

    /// When the execution with this number in its input first asked; said once.
    pub(super) fn first_asked(&self, number: u64) -> Option<Instant> {
        self.seen.first.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }
}

async fn serve(listener: TcpListener, answers: Answers, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        // Small answers must not wait for the acknowledgement of the ones before.
        let _ = stream.set_nodelay(true);
        let seen = seen.clone();
        let answer = service_fn(move |request| answer(request, answers, seen.clone()));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    answers: Answers,
    seen: Arc<Seen>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let asked_at = Instant::now();
    seen.requests.fetch_add(1, Ordering::Relaxed);
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    if let Some(number) = number(&body) {
        seen.first.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_insert(asked_at);
    }
    let results = count(&body, br#""role":"tool""#);
    tokio::time::sleep(answers.delay).await;
    let reply = if results < answers.rounds { call(results) } else { end() };
    let mut response = Response::new(Full::new(reply));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

fn end() -> Bytes {
    Bytes::from_static(
        b"data: {\"id\":\"b\",\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\
        \"{\\\"ok\\\": true}\"},\"finish_reason\":null}]}\n\n\
        data: {\"id\":\"b\",\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\
        \"usage\":{\"prompt_tokens\":20,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n",
    )
}

fn call(round: usize) -> Bytes {
    Bytes::from(format!(
        "data: {{\"id\":\"b\",\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"tool_calls\":\
         [{{\"index\":0,\"id\":\"call_{round}\",\"type\":\"function\",\"function\":{{\"name\":\"{TOOL}\",\"arguments\":\
         \"{{\\\"round\\\": {round}}}\"}}}}]}},\"finish_reason\":null}}]}}\n\n\
         data: {{\"id\":\"b\",\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"tool_calls\"}}],\
         \"usage\":{{\"prompt_tokens\":20,\"completion_tokens\":5}}}}\n\ndata: [DONE]\n\n"
    ))
}

/// The number in the execution's input, which is its first user message.
fn number(body: &[u8]) -> Option<u64> {
    let marker = br#"\"number\":"#;
    let at = body.windows(marker.len()).position(|window| window == marker)? + marker.len();
    let digits: String = body[at..]
        .iter()
        .skip_while(|byte| **byte == b' ')
        .map_while(|byte| char::from(*byte).to_digit(10))
        .filter_map(|digit| char::from_digit(digit, 10))
        .collect();
    digits.parse().ok()
}

fn count(body: &[u8], marker: &[u8]) -> usize {
    body.windows(marker.len()).filter(|window| *window == marker).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_execution_is_found_in_its_request() {
        let body = br#"{"messages":[{"role":"system","content":"x"},{"role":"user","content":"{\"number\": 41}"}]}"#;
        assert_eq!(number(body), Some(41));
        assert_eq!(number(b"{}"), None);
        assert_eq!(count(br#"[{"role":"tool"},{"role":"tool"}]"#, br#""role":"tool""#), 2);
    }
}
