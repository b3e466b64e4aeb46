//! The model of the benchmarks: a server in this process that gives every request the same answer after a delay, with
//! a configured number of tool rounds before the end. It parses and keeps no request, because it takes its time from
//! the processes that are measured.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use longhaul_testkit::{
    http_server::Protocol,
    model::{Captured, ModelServer, Reply, Switch, reply_bytes, reply_hang_up, reply_status},
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// Name of the tool called in the rounds.
pub(super) const TOOL: &str = "note";
/// Its name when the server of `tools.rs` provides it.
pub(super) const MCP_TOOL: &str = "mcp__bench__note";

/// Name of the tool whose results have a size.
pub(super) const PAGE_TOOL: &str = "page";

/// Number of answers with setbacks that the validator corrects.
const BAD_ANSWERS: usize = 2;
/// The wait that a 429 states, in milliseconds.
const RETRY_AFTER_MS: &str = "100";

/// Name of a second model of the same server, which can be made unavailable.
pub(super) const UNSTEADY: &str = "unsteady";

/// Configuration of the answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    /// Delay before each answer.
    pub(super) delay: Duration,
    /// Rounds of one tool call each, before the answer that ends the execution.
    pub(super) rounds: usize,
    /// Name of the called tool, as the agent knows it.
    pub(super) tool: &'static str,
    /// Every execution first gets a 429, then [`BAD_ANSWERS`] answers that are no JSON.
    pub(super) setbacks: bool,
    pub(super) protocol: Protocol,
}

impl Default for Answers {
    fn default() -> Self {
        Self { delay: Duration::ZERO, rounds: 0, tool: TOOL, setbacks: false, protocol: Protocol::default() }
    }
}

/// The running server.
pub(super) struct Model {
    server: ModelServer,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    /// Time of the first request for each execution number.
    first: Mutex<HashMap<u64, Instant>>,
    /// Number of requests of each execution number that had a setback.
    setbacks: Mutex<HashMap<u64, usize>>,
    /// Receives the requests since [`Model::take_over`].
    taken_over: OnceLock<mpsc::UnboundedSender<UnansweredRequest>>,
}

/// A request that the benchmark answers. Dropping it drops the connection.
pub(super) struct UnansweredRequest {
    /// Time at which the request had arrived whole.
    pub(super) at: Instant,
    /// Size of the request body.
    pub(super) bytes: usize,
    /// Number in the execution's input.
    pub(super) number: Option<u64>,
    reply: oneshot::Sender<Reply>,
}

impl UnansweredRequest {
    /// Answers with a tool call; `round` makes its id unique within the execution.
    pub(super) fn call(self, tool: &str, round: usize, arguments: &str) {
        self.answer(stream(call(tool, round, arguments)));
    }

    /// Answers with the end of the execution.
    pub(super) fn end(self) {
        self.answer(finished());
    }

    pub(super) fn answer(self, reply: Reply) {
        // A receiver that is gone means that the worker has hung up.
        let _ = self.reply.send(reply);
    }
}

impl Model {
    pub(super) async fn start(answers: Answers) -> anyhow::Result<Self> {
        let seen = Arc::new(Seen::default());
        let noted = seen.clone();
        let server = ModelServer::builder().protocol(answers.protocol).lax().unsteady(UNSTEADY);
        let server = server.answer_later(move |request| answer(request, answers, noted.clone()));
        Ok(Self { server: server.start().await?, seen })
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// The self-signed certificate to trust, in PEM; `None` without TLS.
    pub(super) fn certificate(&self) -> Option<&str> {
        self.server.certificate()
    }

    /// Number of requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }

    /// Makes [`UNSTEADY`] unavailable and available.
    pub(super) fn switch(&self) -> Switch {
        self.server.switch()
    }

    /// Lets the benchmark answer every request from now on. `None` if it already does.
    pub(super) fn take_over(&self) -> Option<mpsc::UnboundedReceiver<UnansweredRequest>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.seen.taken_over.set(sender).is_ok().then_some(receiver)
    }

    /// Time of the first request of the execution with this input number. Returned once, then forgotten.
    pub(super) fn first_asked(&self, number: u64) -> Option<Instant> {
        self.seen.first.lock().remove(&number)
    }
}

/// The benchmark's answer to a request; `None` if it gives none.
async fn ask(benchmark: &mpsc::UnboundedSender<UnansweredRequest>, body: &[u8]) -> Option<Reply> {
    let (reply, answered) = oneshot::channel();
    let request = UnansweredRequest { at: Instant::now(), bytes: body.len(), number: number(body), reply };
    benchmark.send(request).ok()?;
    answered.await.ok()
}

async fn answer(request: Captured, answers: Answers, seen: Arc<Seen>) -> Reply {
    let body = &request.raw;
    match seen.taken_over.get() {
        Some(benchmark) => ask(benchmark, body).await.unwrap_or_else(reply_hang_up),
        None => planned(body, answers, &seen).await,
    }
}

async fn planned(body: &[u8], answers: Answers, seen: &Seen) -> Reply {
    let asked_at = Instant::now();
    seen.requests.fetch_add(1, Ordering::Relaxed);
    if let Some(number) = number(body) {
        seen.first.lock().entry(number).or_insert(asked_at);
    }
    let results = count(body, br#""role":"tool""#);
    tokio::time::sleep(answers.delay).await;
    if results < answers.rounds {
        stream(call(answers.tool, results, &format!("{{\"round\": {results}}}")))
    } else if answers.setbacks {
        setback(body, seen).unwrap_or_else(|| stream(end()))
    } else {
        stream(end())
    }
}

/// The setback of this request; `None` when the execution has had all of them. The warm-up and the measurement use
/// the same execution numbers, so the count starts again after each end.
fn setback(body: &[u8], seen: &Seen) -> Option<Reply> {
    let mut setbacks = seen.setbacks.lock();
    let had = setbacks.entry(number(body)?).or_default();
    let now = *had % (1 + BAD_ANSWERS + 1);
    *had += 1;
    match now {
        0 => Some(reply_status(429, "Too many requests.").header("retry-after-ms", RETRY_AFTER_MS)),
        1..=BAD_ANSWERS => Some(stream(answer_text("not JSON"))),
        _ => None,
    }
}

fn stream(reply: Bytes) -> Reply {
    reply_bytes("text/event-stream", reply)
}

fn answer_text(text: &str) -> Bytes {
    let text = text.replace('"', "\\\"");
    Bytes::from(format!(
        "data: {{\"id\":\"b\",\"model\":\"bench\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"role\":\"assistant\",\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n\
         data: {{\"id\":\"b\",\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{{}},\
         \"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":20,\"completion_tokens\":5}}}}\n\ndata: [DONE]\n\n"
    ))
}

/// The reply that ends the execution.
pub(super) fn finished() -> Reply {
    stream(end())
}

/// The answer that ends the execution.
fn end() -> Bytes {
    answer_text(r#"{"ok": true}"#)
}

fn call(tool: &str, round: usize, arguments: &str) -> Bytes {
    let arguments = arguments.replace('"', "\\\"");
    Bytes::from(format!(
        "data: {{\"id\":\"b\",\"model\":\"bench\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"role\":\"assistant\",\"tool_calls\":[{{\"index\":0,\
         \"id\":\"call_{round}\",\"type\":\"function\",\"function\":{{\"name\":\"{tool}\",\"arguments\":\
         \"{arguments}\"}}}}]}},\"finish_reason\":null}}]}}\n\n\
         data: {{\"id\":\"b\",\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{{}},\
         \"finish_reason\":\"tool_calls\"}}],\
         \"usage\":{{\"prompt_tokens\":20,\"completion_tokens\":5}}}}\n\ndata: [DONE]\n\n"
    ))
}

/// The number in the execution's input, which is in the first user message.
fn number(body: &[u8]) -> Option<u64> {
    let marker = br#"\"number\":"#;
    let at = body.windows(marker.len()).position(|window| window == marker)? + marker.len();
    let rest = body[at..].trim_ascii_start();
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

fn count(body: &[u8], marker: &[u8]) -> usize {
    body.windows(marker.len()).filter(|window| *window == marker).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execution_number_is_read_from_its_request() {
        let body = br#"{"messages":[{"role":"system","content":"x"},{"role":"user","content":"{\"number\": 41}"}]}"#;
        assert_eq!(number(body), Some(41));
        assert_eq!(number(b"{}"), None);
        assert_eq!(count(br#"[{"role":"tool"},{"role":"tool"}]"#, br#""role":"tool""#), 2);
    }
}
