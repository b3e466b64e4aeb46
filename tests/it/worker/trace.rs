//! One trace from the HTTP submit to the last call, as a collector receives it.

use std::collections::BTreeMap;

use longhaul_domain::ExecutionId;
use longhaul_sdk::ToolEffect;
use longhaul_telemetry as telemetry;
use longhaul_testkit::model::{reply_calls, reply_status, reply_text};
use serde_json::{Value, json};
use tracing::dispatcher::set_default;

use super::{
    kit::{TestTool, agent_with, definition},
    typed::Api,
};
use crate::{
    support::fleet::Fleet,
    telemetry::{collector, config},
};

/// An exported span.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) name: String,
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) is_error: bool,
    /// Values of attributes as text; numbers start with `#`.
    pub(super) attributes: BTreeMap<String, String>,
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// Fields of a protobuf message by number, each as its bytes.
fn fields(mut message: &[u8]) -> BTreeMap<u64, Vec<&[u8]>> {
    let mut found: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let skip = match tag & 7 {
            0 => {
                let before = message;
                varint(&mut message);
                found.entry(tag >> 3).or_default().push(&before[..before.len() - message.len()]);
                0
            }
            1 => {
                found.entry(tag >> 3).or_default().push(&message[..8]);
                8
            }
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                found.entry(tag >> 3).or_default().push(&message[..length]);
                length
            }
            5 => 4,
            other => panic!("wire type {other}"),
        };
        message = &message[skip..];
    }
    found
}

/// A key and its value, which is a text (field 1), a whole number (field 3) or a fraction (field 4).
fn attribute(pair: &[u8]) -> (String, String) {
    let pair = fields(pair);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = fields(pair[&2][0]);
    let value = match (value.get(&1), value.get(&3), value.get(&4)) {
        (Some(words), _, _) => text(words[0]),
        (None, Some(number), _) => format!("#{}", varint(&mut &*number[0])),
        (None, None, Some(number)) => format!("#{}", f64::from_le_bytes(number[0].try_into().unwrap())),
        (None, None, None) => String::new(),
    };
    (text(pair[&1][0]), value)
}

/// Every span of an export request.
pub(super) fn spans(body: &[u8]) -> Vec<Span> {
    let inside = |messages: Vec<&[u8]>, field: u64| -> Vec<Vec<u8>> {
        messages
            .iter()
            .flat_map(|message| fields(message).remove(&field).unwrap_or_default())
            .map(<[u8]>::to_vec)
            .collect()
    };
    let resources = inside(vec![body], 1);
    let scopes = inside(resources.iter().map(Vec::as_slice).collect(), 2);
    let spans = inside(scopes.iter().map(Vec::as_slice).collect(), 2);
    let read = |span: &Vec<u8>| {
        let fields = fields(span);
        let hex = |number: u64| fields.get(&number).map(|values| hex::encode(values[0])).unwrap_or_default();
        let name = String::from_utf8_lossy(fields[&5][0]).into_owned();
        let nanoseconds = |number: u64| u64::from_le_bytes(fields[&number][0].try_into().unwrap());
        let status = fields.get(&15).map(|status| self::fields(status[0]));
        let is_error = status.is_some_and(|status| status.get(&3).is_some_and(|code| code[0] == [2]));
        let attributes = fields.get(&9).into_iter().flatten().map(|pair| attribute(pair)).collect();
        let (started, ended) = (nanoseconds(7), nanoseconds(8));
        Span { trace: hex(1), id: hex(2), parent: hex(4), name, started, ended, is_error, attributes }
    };
    spans.iter().map(read).collect()
}

/// Names of the spans of an attempt, a turn and a call, by the GenAI conventions.
const ATTEMPT: &str = "invoke_agent a";
const TURN: &str = "chat default";
const CALL: &str = "execute_tool note";

/// Variable that is set in the process that the test starts for itself.
const ALONE: &str = "LONGHAUL_TEST_ALONE";

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test tells itself apart from the process that it starts")]
async fn one_trace_spans_submit_to_last_call() {
    if std::env::var_os(ALONE).is_none() {
        // A process of its own: `tracing` remembers per process if a span is wanted, and the other tests want none.
        let mut test = tokio::process::Command::new(std::env::current_exe().unwrap());
        test.args(["worker::trace::one_trace_spans_submit_to_last_call", "--exact", "--nocapture"]);
        let output = test.env(ALONE, "1").kill_on_drop(true).output().await.unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (endpoint, exports) = collector().await;
    let (dispatch, guard) = telemetry::build(&config(Some(endpoint)), "longhaul-test").unwrap();
    // The test has one thread, so every task of API and worker uses this collector.
    let default = set_default(&dispatch);
    let mut fleet = Fleet::start().await;
    let api = Api::start(&mut fleet).await;
    let tool = TestTool::recording("note", ToolEffect::ReadOnly);
    fleet.apply(&agent_with(&["note"]), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool).unwrap());
    fleet.llm.push(reply_calls([("note", json!({"value": 1}))]));
    fleet.llm.push(reply_text("{}"));
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let submit = api
        .client
        .post(format!("{}/executions", api.url))
        .bearer_auth(&api.key)
        .header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"))
        .json(&json!({"definition": "d", "input": {}}));
    let submitted: Value = submit.send().await.unwrap().json().await.unwrap();
    let id = ExecutionId(submitted["id"].as_str().unwrap().parse().unwrap());
    assert_eq!(submitted["trace_id"], trace);
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    fleet.llm.push(reply_status(400, "no such model"));
    let refused = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(refused).await["status"], "FAILED");
    worker.drain().await;
    // Each model call carries the trace to the provider's gateway.
    for request in &fleet.llm.requests()[..2] {
        assert!(request.header("traceparent").unwrap().contains(trace));
    }
    drop(default);
    tokio::task::spawn_blocking(move || drop(guard)).await.unwrap();

    let exports = exports.lock().unwrap().clone();
    let (all, others): (Vec<Span>, Vec<Span>) =
        exports.iter().flat_map(|(_, body)| spans(body)).partition(|span| span.trace == trace);
    let of = |name: &str| -> Vec<&Span> { all.iter().filter(|span| span.name == name).collect() };
    let names = ["POST /v1/executions", "wakeup", ATTEMPT, "claim", TURN, CALL];
    let counts = names.map(|name| of(name).len());
    assert_eq!(counts, [1, 1, 1, 1, 2, 1], "{all:?}");
    let (submit, attempt) = (of("POST /v1/executions")[0], of(ATTEMPT)[0]);
    assert_eq!(submit.parent, "b7ad6b7169203331");
    for (name, parent) in [("wakeup", submit), (ATTEMPT, submit), ("claim", attempt), (TURN, attempt), (CALL, attempt)]
    {
        assert!(of(name).iter().all(|span| span.parent == parent.id), "{name}: {all:?}");
    }
    assert!(all.iter().all(|span| !span.is_error), "{all:?}");
    assert_eq!(submit.attributes["http.response.status_code"], "#201");
    let first = of(TURN).into_iter().min_by_key(|span| span.started).unwrap();
    let (turn, tokens) = (&first.attributes["turn.number"], &first.attributes["gen_ai.usage.input_tokens"]);
    assert!(turn.starts_with('#') && tokens.starts_with('#'), "{first:?}");
    let first_chunk: f64 = first.attributes["gen_ai.response.time_to_first_chunk"][1..].parse().unwrap();
    assert!(first_chunk > 0.0 && first_chunk * 1e9 <= (first.ended - first.started) as f64, "{first:?}");
    // A turn's span ends with its reply; the calls of the reply come after it.
    assert!(first.ended <= of(CALL)[0].ended, "{first:?} {:?}", of(CALL));
    let told =
        |span: &Span, names: &[&str]| names.iter().map(|name| span.attributes[*name].clone()).collect::<Vec<_>>();
    let agent = ["gen_ai.operation.name", "gen_ai.agent.name", "agent.version", "definition.key"];
    assert_eq!(told(attempt, &agent), ["invoke_agent", "a", "1", "d"]);
    let tool = ["gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.type"];
    assert_eq!(told(of(CALL)[0], &tool), ["execute_tool", "note", "function"]);
    let failed: Vec<(&str, &str)> = others
        .iter()
        .filter(|span| span.is_error)
        .map(|span| (span.name.as_str(), span.attributes["error.type"].as_str()))
        .collect();
    assert_eq!(failed, [(TURN, "model_request_refused"), (ATTEMPT, "model_request_refused")]);
}
