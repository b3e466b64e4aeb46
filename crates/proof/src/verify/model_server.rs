//! The model server: chat completions over HTTP that follow a fixed plan, streamed for every other execution. Records
//! every request with its idempotency key, its process, and the time its answer was complete.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::stream;
use hyper::{Request, body::Bytes};
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_testkit::http_server::{self, Answer, HangUp, HttpServer, Protocol, StartError};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    fleet::{DEFINITION, PROCESS_HEADER, SPAWN_SUB_AGENT},
    load::{CHILDREN_FROM, Kind, kind},
    seen::{CountedTool, SeenRequest},
};

/// Name of the tool server in the agent.
pub(super) const TOOL_SERVER: &str = "verify";
/// Text before the number of an execution in its first message.
pub(super) const MARK: &str = "verify execution ";
/// Shortest and longest delay of an answer, in milliseconds.
const THINKS_MS: (u64, u64) = (60, 240);
/// Pause between the pieces of a streamed answer, so that calls can start while it streams.
const BETWEEN_PIECES: Duration = Duration::from_millis(15);

/// The running server, stopped when dropped.
pub(super) struct ModelServer {
    server: HttpServer,
    log: Log,
    switch: Switch,
}

/// Makes the model unavailable and available again.
#[derive(Clone, Default)]
pub(super) struct Switch(Arc<AtomicBool>);

impl Switch {
    /// From now on new requests are refused, and earlier ones get no answer or no more of it.
    pub(super) fn take_away(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn refuses(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<SeenRequest>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<SeenRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the whole answer was handed to the connection.
    fn answered(&self, number: usize) {
        let now = SystemClock::new().now();
        if let Some(asked) = self.lock().get_mut(number) {
            asked.answered_at = Some(now);
        }
    }
}

impl ModelServer {
    pub(super) async fn start() -> Result<Self, StartError> {
        let log = Log::default();
        let switch = Switch::default();
        let own = (log.clone(), switch.clone());
        let handle = move |request| answer(own.0.clone(), own.1.clone(), request);
        let server = HttpServer::start(Protocol::Http1, handle).await?;
        Ok(Self { server, log, switch })
    }

    /// Base URL, the same for all processes: they share one breaker.
    pub(super) fn url(&self) -> String {
        format!("{}/v1", self.server.url())
    }

    pub(super) fn switch(&self) -> Switch {
        self.switch.clone()
    }

    /// All requests so far.
    pub(super) fn asked(&self) -> Vec<SeenRequest> {
        self.log.lock().clone()
    }
}

/// The calls of a turn, numbered within their execution; no calls end the execution. Covers every kind of tool, alone
/// and with others.
fn plan(execution: i64, turn: usize) -> Vec<(i64, CountedTool)> {
    let turns = 3 + usize::try_from(execution % 3).unwrap_or_default();
    let first = i64::try_from(turn).unwrap_or_default() * 2;
    match turn {
        last if last + 1 >= turns => Vec::new(),
        0 => vec![(first, CountedTool::Look), (first + 1, CountedTool::Charge)],
        1 if execution % 7 == 0 => vec![(first, CountedTool::Put), (first + 1, CountedTool::ChargeUnanswered)],
        1 => vec![(first, CountedTool::Put)],
        _ => vec![(first, CountedTool::Charge)],
    }
}

/// The calls of a turn in the wire format.
fn wire_calls(execution: i64, turn: usize) -> Vec<Value> {
    if kind(execution) == Kind::Tree {
        return if turn == 0 { vec![spawn_call(execution)] } else { Vec::new() };
    }
    let calls = plan(execution, turn);
    calls.iter().enumerate().map(|(index, call)| wire_call(execution, index, *call)).collect()
}

fn spawn_call(execution: i64) -> Value {
    let task =
        |child: i64| json!({ "agent": DEFINITION, "prompt": format!("{MARK}{}", execution + child * CHILDREN_FROM) });
    let arguments = json!({ "tasks": [task(1), task(2)] }).to_string();
    json!({ "index": 0, "id": "call_0", "type": "function", "function": { "name": SPAWN_SUB_AGENT, "arguments": arguments } })
}

/// The parts of a request that the plan needs.
struct Question {
    process: String,
    key: String,
    execution: i64,
    turn: usize,
}

impl Question {
    fn read(request: &Request<Bytes>) -> Option<Self> {
        let header = |name| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
        let (process, key) = (header(PROCESS_HEADER)?, header("idempotency-key")?);
        let body: Value = serde_json::from_slice(request.body()).ok()?;
        let messages = body["messages"].as_array()?;
        let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
        let texts = messages.iter().filter(|message| message["role"] == "user").map(|message| message.to_string());
        let execution = texts.filter_map(|text| marked_number(&text)).next()?;
        Some(Self { process, key, execution, turn })
    }
}

fn marked_number(text: &str) -> Option<i64> {
    let rest = &text[text.find(MARK)? + MARK.len()..];
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

async fn answer(log: Log, switch: Switch, request: Request<Bytes>) -> Result<Answer, HangUp> {
    let Some(question) = Question::read(&request) else {
        return http_server::whole(
            400,
            "application/json",
            r#"{"error": {"message": "not a question of this fleet"}}"#,
        );
    };
    if switch.refuses() {
        return http_server::whole(503, "application/json", r#"{"error": {"message": "the model is away"}}"#);
    }
    let Question { process, key, execution, turn } = question;
    let number = {
        let at = SystemClock::new().now();
        let mut asked = log.lock();
        let number = asked.len();
        asked.push(SeenRequest { number, key, process, execution, turn, at, answered_at: None });
        number
    };
    let (least, most) = THINKS_MS;
    let spread = (execution.unsigned_abs() * 31 + turn as u64 * 17) % (most - least);
    sleep(Duration::from_millis(least + spread)).await;
    if switch.refuses() {
        return Err(HangUp);
    }
    let calls = wire_calls(execution, turn);
    let text = if calls.is_empty() { format!(r##"{{"done": "#{number}#"}}"##) } else { format!("answer #{number}#") };
    if execution % 2 == 0 {
        let body = whole(&text, &calls).to_string();
        log.answered(number);
        return http_server::whole(200, "application/json", body);
    }
    let pieces = pieces(&text, calls);
    http_server::stream(
        "text/event-stream",
        stream::unfold((pieces.into_iter(), log, switch), move |(mut pieces, log, switch)| async move {
            let piece = pieces.next()?;
            sleep(BETWEEN_PIECES).await;
            if switch.refuses() {
                return Some((Err(HangUp), (Vec::new().into_iter(), log, switch)));
            }
            if pieces.len() == 0 {
                log.answered(number);
            }
            Some((Ok(piece), (pieces, log, switch)))
        }),
    )
}

fn wire_call(execution: i64, index: usize, (call, tool): (i64, CountedTool)) -> Value {
    let arguments = json!({ "execution": execution, "call": call }).to_string();
    json!({
        "index": index, "id": format!("call_{call}"), "type": "function",
        "function": { "name": format!("mcp__{TOOL_SERVER}__{}", tool.name()), "arguments": arguments },
    })
}

fn finish_reason(calls: &[Value]) -> &'static str {
    if calls.is_empty() { "stop" } else { "tool_calls" }
}

fn usage() -> Value {
    json!({ "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 })
}

fn whole(text: &str, calls: &[Value]) -> Value {
    let mut message = json!({ "role": "assistant", "content": text });
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    json!({
        "id": "completion", "object": "chat.completion", "model": "verify", "usage": usage(),
        "choices": [{ "index": 0, "message": message, "finish_reason": finish_reason(calls) }],
    })
}

/// The answer as server-sent events: the text, each call, the end.
fn pieces(text: &str, calls: Vec<Value>) -> Vec<Bytes> {
    let end = json!({ "index": 0, "delta": {}, "finish_reason": finish_reason(&calls) });
    let delta = |delta: Value| json!({ "index": 0, "delta": delta, "finish_reason": null });
    let mut choices = vec![delta(json!({ "role": "assistant", "content": text }))];
    choices.extend(calls.into_iter().map(|call| delta(json!({ "tool_calls": [call] }))));
    choices.push(end);
    let chunk = |choices: Value, usage: Value| json!({ "id": "completion", "object": "chat.completion.chunk", "model": "verify", "choices": choices, "usage": usage });
    let mut events: Vec<String> =
        choices.into_iter().map(|choice| format!("data: {}\n\n", chunk(json!([choice]), Value::Null))).collect();
    events.push(format!("data: {}\n\ndata: [DONE]\n\n", chunk(json!([]), usage())));
    events.into_iter().map(Bytes::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_ends_with_unique_call_numbers() {
        for execution in 0..50 {
            let calls: Vec<(i64, CountedTool)> = (0..10).flat_map(|turn| plan(execution, turn)).collect();
            let mut numbers: Vec<i64> = calls.iter().map(|(number, _)| *number).collect();
            numbers.dedup();
            assert_eq!(numbers.len(), calls.len());
            assert!(plan(execution, 5).is_empty());
        }
    }

    #[test]
    fn execution_number_is_read_from_its_prompt() {
        assert_eq!(marked_number("\"content\":\"verify execution 17\""), Some(17));
        assert_eq!(marked_number("verify execution x"), None);
        assert_eq!(marked_number("nothing"), None);
    }
}
