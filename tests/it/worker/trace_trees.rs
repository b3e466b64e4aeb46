//! Traces as a receiver gets them from an API and workers that are processes: one tree per execution, also over a
//! `kill -9`, a wait for a person, and sub-agents.
//!
//! With `LONGHAUL_TEST_PHOENIX`, the address of an Arize Phoenix, that is the receiver (`sh deploy/phoenix.sh`).

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use chrono::{DateTime, Utc};
use longhaul_cli::compose;
use longhaul_domain::ExecutionId;
use longhaul_guards::http::{self, HttpOptions};
use longhaul_sdk::{AgentSpec, spec::ToolRef};
use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{Captured, Reply, reply_calls, reply_silent, reply_status, reply_text};
use rustix::process::Signal;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{
    kit::{agent_with, definition, said},
    sub_agents::spawns,
    trace::{Span, spans},
};
use crate::{
    support::{
        fleet::{Fleet, PATIENCE, agent},
        process::{ApiProcess, WorkerProcess},
        wait::{SOON, eventually},
    },
    telemetry::{Exports, collector},
};

/// What receives the spans.
enum Receiver {
    Own(String, Exports),
    Phoenix(String, reqwest::Client),
}

impl Receiver {
    #[expect(clippy::disallowed_methods, reason = "the receiver is not part of any configuration")]
    async fn start() -> Self {
        match std::env::var("LONGHAUL_TEST_PHOENIX") {
            Ok(url) => Self::Phoenix(url, http::client(&HttpOptions::default()).unwrap()),
            Err(_) => {
                let (endpoint, exports) = collector().await;
                Self::Own(endpoint, exports)
            }
        }
    }

    fn endpoint(&self) -> &str {
        match self {
            Self::Own(endpoint, _) | Self::Phoenix(endpoint, _) => endpoint,
        }
    }

    /// Everything that it has received, of all traces.
    async fn spans(&self) -> Vec<Span> {
        match self {
            Self::Own(_, exports) => {
                let exports = exports.lock().unwrap().clone();
                exports.iter().flat_map(|(_, body)| spans(body)).collect()
            }
            Self::Phoenix(url, client) => {
                let newest = format!("{url}/v1/projects/default/spans?limit=1000");
                let answer: Value = client.get(newest).send().await.unwrap().json().await.unwrap();
                // Before its first span there is no project.
                answer["data"].as_array().into_iter().flatten().map(of_phoenix).collect()
            }
        }
    }

    /// The spans of the traces of these executions.
    async fn of(&self, ids: &[ExecutionId]) -> Vec<Span> {
        let (all, ids): (_, BTreeSet<String>) = (self.spans().await, ids.iter().map(ToString::to_string).collect());
        let is_of = |span: &&Span| span.attributes.get("execution.id").is_some_and(|id| ids.contains(id));
        let traces: BTreeSet<String> = all.iter().filter(is_of).map(|span| span.trace.clone()).collect();
        all.into_iter().filter(|span| traces.contains(&span.trace)).collect()
    }
}

fn of_phoenix(span: &Value) -> Span {
    fn flatten(value: &Value, name: &str, into: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(parts) => parts.iter().for_each(|(key, part)| {
                flatten(part, &if name.is_empty() { key.clone() } else { format!("{name}.{key}") }, into);
            }),
            Value::String(text) => drop(into.insert(name.to_owned(), text.clone())),
            Value::Number(number) => drop(into.insert(name.to_owned(), format!("#{number}"))),
            Value::Null | Value::Bool(_) | Value::Array(_) => drop(into.insert(name.to_owned(), value.to_string())),
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nanoseconds = |value: &Value| {
        let at: DateTime<Utc> = text(value).parse().unwrap();
        u64::try_from(at.timestamp_nanos_opt().unwrap()).unwrap()
    };
    let mut attributes = BTreeMap::new();
    flatten(&span["attributes"], "", &mut attributes);
    Span {
        trace: text(&span["context"]["trace_id"]),
        id: text(&span["context"]["span_id"]),
        parent: text(&span["parent_id"]),
        name: text(&span["name"]),
        started: nanoseconds(&span["start_time"]),
        ended: nanoseconds(&span["end_time"]),
        is_error: span["status_code"] == "ERROR",
        attributes,
    }
}

async fn submit(api: &ApiProcess, definition: &str, task: &str) -> ExecutionId {
    let submitted = api.post("executions", &json!({"definition": definition, "input": {"task": task}})).await;
    ExecutionId(submitted["id"].as_str().unwrap().parse().unwrap())
}

/// Allows the one call that waits for a person, with another key than that of the submit.
async fn approve(api: &ApiProcess, fleet: &Fleet) {
    let pepper = compose::pepper(&fleet.config()).unwrap();
    let key = fleet.store.issue_api_key(fleet.tenant, "person", Scope::ALL, &pepper).await.unwrap().key;
    let key = key.expose_secret();
    let asked = eventually("an approval is asked for", PATIENCE, async || {
        let waiting = api.client.get(format!("{}/v1/approvals", api.url)).bearer_auth(key);
        let waiting: Value = waiting.send().await.unwrap().json().await.unwrap();
        let first = waiting["approvals"].get(0).cloned();
        first.ok_or(waiting.to_string())
    })
    .await;
    let path = format!("{}/v1/approvals/{}/decision", api.url, asked["id"].as_str().unwrap());
    let decision = json!({"decision": "approve", "hash": asked["hash"]});
    let decided = api.client.post(path).bearer_auth(key).json(&decision).send().await.unwrap();
    assert_eq!(decided.status(), 200, "{:?}", decided.text().await);
}

/// Replies by the task in the prompt. `hangs`: the next reply after a call never comes.
fn reply(request: &Captured, hangs: &AtomicBool) -> Reply {
    let text: String = said(request).into_iter().map(|(_, text)| text).collect();
    let is = |task: &str| text.contains(task);
    match request.replies() {
        0 if is("task-fail") => reply_status(400, "no such model"),
        0 if is("task-tree") => {
            let tasks = ["leaf-one", "leaf-two"].map(|prompt| json!({"agent": "child", "prompt": prompt}));
            reply_calls([("spawn_sub_agent", json!({"tasks": tasks}))])
        }
        0 if is("task-kill") || is("task-park") => reply_calls([("echo", json!({"text": "hello"}))]),
        _ if is("task-kill") && hangs.swap(false, Ordering::SeqCst) => reply_silent(),
        _ => reply_text("{}"),
    }
}

/// Agents and definitions of the four tasks, quick leases, and prices, which only a file can set; it is kept.
async fn prepared(receiver: &Receiver) -> (Fleet, NamedTempFile) {
    let mut fleet = Fleet::start().await;
    for (name, seconds) in [("LEASE", "2"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
        fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
    }
    fleet.set("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint());
    fleet.set("OTEL_BSP_SCHEDULE_DELAY", "100");
    let mut file = NamedTempFile::with_suffix(".toml").unwrap();
    let prices = "prices = [{ model = \"default\", input = 3.0, output = 15.0 }]";
    let provider =
        format!("kind = \"openai\"\nbase_url = \"{}\"\ndefault_model = \"default\"\n{prices}", fleet.llm.url());
    write!(file, "[llm.providers.custom]\n{provider}\n").unwrap();
    fleet.set("LONGHAUL_CONFIG", file.path().to_str().unwrap());
    fleet.store.put_shared_agent(&agent("child")).await.unwrap();
    let tools = vec![ToolRef::Name("echo".into()), spawns(&json!({"agents": ["child"]}))];
    let free = AgentSpec { tools, ..agent_with(&[]) };
    fleet.apply(&free, &definition("free", &["is_valid_json"])).await;
    let approvals = serde_json::from_value(json!({"rules": [{"tool": "echo", "access": "ask"}]})).unwrap();
    let asking = AgentSpec { key: "asking".into(), approvals, ..agent_with(&["echo"]) };
    let mut asks = definition("asks", &["is_valid_json"]);
    asks.agent_key = "asking".into();
    fleet.apply(&asking, &asks).await;
    let hangs = AtomicBool::new(true);
    fleet.llm.answer_with(move |request| reply(request, &hangs).usage(1_000, 100));
    (fleet, file)
}

/// Asserts that the spans of one tree of executions are a tree under its submit, and returns its attempts in order.
fn attempts(all: &[Span], id: ExecutionId) -> Vec<Span> {
    let is_of = |span: &&Span| span.attributes.get("execution.id") == Some(&id.to_string());
    let trace = &all.iter().find(is_of).unwrap().trace;
    let tree: Vec<&Span> = all.iter().filter(|span| span.trace == *trace).collect();
    let ids: BTreeSet<&str> = tree.iter().map(|span| span.id.as_str()).collect();
    assert_eq!(ids.len(), tree.len(), "{id}: a span was exported twice: {tree:#?}");
    let (roots, rest): (Vec<&&Span>, Vec<_>) = tree.iter().partition(|span| span.parent.is_empty());
    assert_eq!(roots.iter().map(|root| root.name.as_str()).collect::<Vec<_>>(), ["POST /v1/executions"], "{tree:#?}");
    assert!(rest.iter().all(|span| ids.contains(span.parent.as_str())), "{id}: parents are missing: {tree:#?}");
    for span in &tree {
        let known = ["POST /v1/executions", "wakeup", "claim", "chat default", "execute_tool echo"];
        assert!(known.contains(&span.name.as_str()) || span.name.starts_with("invoke_agent "), "{}", span.name);
        for number in ["turn.number", "gen_ai.usage.input_tokens", "attempt.number", "http.response.status_code"] {
            let value = span.attributes.get(number);
            assert!(value.is_none_or(|value| value.starts_with('#')), "{number} is no number: {span:?}");
        }
        assert_eq!(span.is_error, span.attributes.contains_key("error.type"), "{span:?}");
    }
    let mut attempts: Vec<Span> =
        tree.into_iter().filter(|span| span.name.starts_with("invoke_agent ")).cloned().collect();
    attempts.sort_by_key(|span| span.started);
    attempts
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_are_one_tree_over_kill_park_and_children() {
    let receiver = Receiver::start().await;
    let (mut fleet, _file) = prepared(&receiver).await;
    let api = ApiProcess::start(&mut fleet).await;
    let mut first = WorkerProcess::start(&fleet).await;
    let killed = submit(&api, "free", "task-kill").await;
    eventually("the call and its turn are received", SOON, async || {
        let received = receiver.of(&[killed]).await;
        let has = |name: &str| received.iter().any(|span| span.name == name);
        let is_held = fleet.llm.in_flight() > 0;
        if has("execute_tool echo") && has("chat default") && is_held { Ok(()) } else { Err(format!("{received:?}")) }
    })
    .await;
    first.kill();
    let mut second = WorkerProcess::start(&fleet).await;
    let parked = submit(&api, "asks", "task-park").await;
    let tree = submit(&api, "free", "task-tree").await;
    let failed = submit(&api, "free", "task-fail").await;
    approve(&api, &fleet).await;
    let ids = [killed, parked, tree, failed];
    for (id, status) in ids.into_iter().zip(["FINISHED", "FINISHED", "FINISHED", "FAILED"]) {
        assert_eq!(fleet.ended(id).await["status"], status);
    }
    second.signal(Signal::TERM);
    second.ended(Duration::from_secs(60)).await;
    api.end().await;
    assert_metrics(&second.metrics());
    // Its own collector has everything now; others may store it later.
    let all = eventually("all spans are received", SOON, async || {
        let all = receiver.of(&ids).await;
        let count = all.iter().filter(|span| span.name.starts_with("invoke_agent ")).count();
        if count == 9 { Ok(all) } else { Err(format!("{count} attempts: {all:#?}")) }
    })
    .await;

    assert_lost(&all, killed);
    let waits = attempts(&all, parked);
    assert_eq!(names(&waits), ["invoke_agent asking", "invoke_agent asking"]);
    assert!(waits.iter().all(|span| !span.is_error), "{waits:?}");

    let family = attempts(&all, tree);
    let mut agents = names(&family);
    agents.sort_unstable();
    assert_eq!(agents, ["invoke_agent a", "invoke_agent a", "invoke_agent child", "invoke_agent child"]);
    let parent = &family.iter().find(|span| span.name == "invoke_agent a").unwrap().id;
    let children = family.iter().filter(|span| span.name == "invoke_agent child");
    assert!(children.clone().all(|child| child.parent == *parent), "{family:?}");

    let ended = attempts(&all, failed);
    assert_eq!(ended[0].attributes["error.type"], "model_request_refused");
    let calls = all.iter().filter(|span| span.trace == ended[0].trace && span.name == "chat default");
    assert!(calls.clone().count() == 1 && calls.clone().all(|call| call.is_error), "{all:#?}");
}

/// Asserts that the killed attempt has its span, with the calls that it made.
fn assert_lost(all: &[Span], killed: ExecutionId) {
    let lost = attempts(all, killed);
    assert_eq!(names(&lost), ["invoke_agent a", "invoke_agent a"]);
    assert_eq!(lost[0].attributes["error.type"], "lease_lost");
    assert!(!lost[1].is_error && lost[0].started < lost[1].started, "{lost:?}");
    let under = |span: &Span| all.iter().filter(|other| other.parent == span.id).map(|one| one.name.clone()).collect();
    let (mut before, mut after): (Vec<String>, Vec<String>) = (under(&lost[0]), under(&lost[1]));
    before.sort();
    after.sort();
    assert_eq!(before, ["chat default", "claim", "execute_tool echo"], "the calls of the killed attempt");
    assert_eq!(after, ["chat default", "claim"], "the recorded turn and call are not repeated");
}

/// Asserts that the metrics of the second worker tell the same calls.
fn assert_metrics(text: &str) {
    let value = |series: &str| -> f64 {
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series));
        line.unwrap_or_else(|| panic!("no {series} in:\n{text}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    let model = r#"gen_ai_operation_name="chat",gen_ai_provider_name="custom",gen_ai_request_model="default""#;
    let duration = "gen_ai_client_inference_duration_seconds_count";
    assert_eq!(value(&format!(r#"{duration}{{{model},error_type="model_request_refused"}}"#)), 1.0);
    let ok = value(&format!(r#"{duration}{{{model},error_type=""}}"#));
    assert_eq!(ok, 7.0, "one of the killed, two of the parked, two of the parent, and the children's");
    assert_eq!(value(&format!("gen_ai_client_inference_time_to_first_chunk_seconds_count{{{model}}}")), ok);
    let tokens = |kind: &str| {
        let counter = format!("gen_ai_client_inference_usage_{kind}_tokens_total");
        value(&format!(r#"{counter}{{{model},gen_ai_token_modality="unknown"}}"#))
    };
    let dollars = (tokens("input") * 3.0 + tokens("output") * 15.0) / 1e6;
    let cost = value(r#"longhaul_model_cost_usd_total{provider="custom",model="default"}"#);
    assert!(dollars > 0.0 && (cost - dollars).abs() < 1e-9, "{cost} is not {dollars}");
    assert_eq!(value(r#"gen_ai_execute_tool_duration_seconds_count{gen_ai_tool_name="echo",error_type=""}"#), 1.0);
    assert!(value("longhaul_worker_permits") >= 1.0);
    assert_eq!(value("longhaul_worker_permits_in_use"), 0.0);
}
