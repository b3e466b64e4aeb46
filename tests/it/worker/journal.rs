//! Resume: a worker dies at every point of a run, drains, or returns with other tools and prompts, and the run
//! continues from its record.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use futures::FutureExt;
use longhaul_agent::probe::{Point, Probe};
use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    Failure, FailureClass, FailureCode, ToolEffect, ToolFailure, ValidatorResponse, spec::McpServerSpec,
};
use longhaul_testkit::mcp::HttpMcp;
use longhaul_testkit::model::{
    Captured, Gate, Reply, ev_call, ev_gate, ev_text, reply_calls, reply_events, reply_hang_up, reply_text,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::kit::{TestTool, TestValidator, agent_with, definition, said};
use crate::support::{
    fleet::{Fleet, FleetWorker, PATIENCE, agent},
    wait::eventually,
};

/// A fleet that detects dead workers within seconds.
pub(crate) async fn quick_fleet() -> Fleet {
    let mut fleet = Fleet::start().await;
    for (name, seconds) in [("LEASE", "2"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
        fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
    }
    fleet
}

/// Holds executions for ever, each at a planned visit of a planned point.
#[derive(Clone, Default)]
pub(crate) struct Holds(Arc<Mutex<HoldsState>>);

#[derive(Default)]
struct HoldsState {
    planned: HashMap<ExecutionId, (Point, usize)>,
    visits: HashMap<(ExecutionId, Point), usize>,
    passed: HashMap<ExecutionId, Vec<(Point, usize)>>,
    held: Vec<ExecutionId>,
}

impl Holds {
    pub(crate) fn plan(&self, id: ExecutionId, point: Point, visit: usize) {
        self.0.lock().unwrap().planned.insert(id, (point, visit));
    }

    pub(crate) fn probe(&self) -> Probe {
        let state = self.0.clone();
        Probe::armed(move |point, id| {
            let mut state = state.lock().unwrap();
            let visit = {
                let visits = state.visits.entry((id, point)).or_default();
                *visits += 1;
                *visits
            };
            state.passed.entry(id).or_default().push((point, visit));
            if state.planned.get(&id) == Some(&(point, visit)) {
                state.held.push(id);
                return std::future::pending().boxed();
            }
            std::future::ready(()).boxed()
        })
    }

    pub(crate) async fn all_held(&self) {
        eventually("every execution stands at its point", PATIENCE, || async {
            let state = self.0.lock().unwrap();
            let missing: Vec<_> = state.planned.iter().filter(|(id, _)| !state.held.contains(id)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("missing: {missing:?}")) }
        })
        .await;
    }

    /// Points that an execution passed, in order, each with the number of the visit.
    pub(crate) fn passed(&self, id: ExecutionId) -> Vec<(Point, usize)> {
        self.0.lock().unwrap().passed.get(&id).cloned().unwrap_or_default()
    }

    pub(crate) fn visits(&self, id: ExecutionId, point: Point) -> usize {
        self.0.lock().unwrap().visits.get(&(id, point)).copied().unwrap_or_default()
    }
}

/// Case of a request, from the input in its prompt.
pub(super) fn case_of(request: &Captured) -> String {
    let input: Value = serde_json::from_str(&said(request)[1].1).unwrap();
    input["case"].as_str().unwrap().to_owned()
}

/// Two rounds of tool calls, an answer that is corrected, and the final answer.
fn script(request: &Captured) -> Reply {
    let case = case_of(request);
    let value = json!({ "value": case });
    match request.replies() {
        0 => reply_events([ev_text("I look. "), ev_call("c1", "look", &value), ev_call("c2", "put", &value)]),
        1 => reply_events([ev_call("c3", "send", &value)]),
        2 => reply_text("prose"),
        _ => reply_text(r#"{"done": true}"#),
    }
}

/// Number of calls of a tool by case and idempotency key.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<String, BTreeMap<String, usize>>>>);

impl Calls {
    fn tool(&self, name: &'static str, effect: ToolEffect) -> TestTool {
        let calls = self.clone();
        TestTool::new(name, effect, move |_, value, context| {
            let mut calls = calls.0.lock().unwrap();
            let of_case = calls.entry(value.as_str().unwrap().to_owned()).or_default();
            *of_case.entry(context.idempotency_key.clone()).or_default() += 1;
            context.scratchpad.record(name, true);
            Ok(format!("{name} is done").into())
        })
    }

    fn of(&self, case: &str) -> BTreeMap<String, usize> {
        self.0.lock().unwrap().get(case).cloned().unwrap_or_default()
    }
}

struct World {
    look: Calls,
    put: Calls,
    send: Calls,
    pads: TestValidator,
}

impl World {
    async fn new(fleet: &Fleet) -> Self {
        let mut agent = agent_with(&["look", "put", "send"]);
        agent.model.stream = false;
        fleet.apply(&agent, &definition("d", &["pads", "is_valid_json"])).await;
        fleet.llm.answer_with(script);
        let pads = TestValidator::always("pads", ValidatorResponse::success());
        Self { look: Calls::default(), put: Calls::default(), send: Calls::default(), pads }
    }

    fn worker(&self, fleet: &Fleet, probe: Probe) -> FleetWorker {
        fleet.worker_with(|builder| {
            let builder = builder.tool(self.look.tool("look", ToolEffect::ReadOnly)).unwrap();
            let builder = builder.tool(self.put.tool("put", ToolEffect::Idempotent)).unwrap();
            let builder = builder.tool(self.send.tool("send", ToolEffect::SideEffect)).unwrap();
            builder.validator(self.pads.clone()).unwrap().probe(probe)
        })
    }
}

/// Visits of each point by an attempt of the script.
const VISITS: [(Point, usize); 15] = [
    (Point::Claimed, 1),
    (Point::Restored, 1),
    (Point::EpisodesWritten, 0),
    (Point::BeforeTurn, 4),
    // The replies do not stream, so no call starts before its reply has ended.
    (Point::TurnBegun, 0),
    (Point::TurnAnswered, 4),
    (Point::TurnRecorded, 4),
    (Point::PutBeforePeople, 0),
    (Point::Aggregated, 0),
    (Point::BeforeCall, 2),
    (Point::CallAnswered, 3),
    (Point::CallRecorded, 3),
    (Point::GraphWritten, 0),
    (Point::BeforeConclusion, 1),
    (Point::Concluded, 1),
];

/// Request bodies of a case by turn, with the name of the case taken out.
fn bodies(fleet: &Fleet, case: &str) -> BTreeMap<usize, Vec<String>> {
    let mut bodies: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for request in fleet.llm.requests().iter().filter(|request| case_of(request) == case) {
        let body = String::from_utf8(request.raw.to_vec()).unwrap().replace(case, "CASE");
        bodies.entry(request.replies()).or_default().push(body);
    }
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_death_repeats_no_recorded_call() {
    assert_eq!(VISITS.map(|(point, _)| point), Point::ALL);
    let fleet = quick_fleet().await;
    let (world, holds) = (World::new(&fleet).await, Holds::default());
    let clean = fleet.submit("d", json!({"case": "clean"})).await;
    let mut cases = Vec::new();
    for (point, visits) in VISITS {
        for visit in 1..=visits {
            let case = format!("{point:?}-{visit}");
            let id = fleet.submit("d", json!({ "case": case })).await;
            holds.plan(id, point, visit);
            cases.push((id, case, point, visit));
        }
    }
    let first = world.worker(&fleet, holds.probe());
    assert_eq!(fleet.ended(clean).await["output"], json!({"done": true}));
    holds.all_held().await;
    for (point, visits) in VISITS {
        assert_eq!(holds.visits(clean, point), visits, "{point:?}");
    }
    first.kill().await;
    eventually("no request is in flight", PATIENCE, || async {
        if fleet.llm.in_flight() == 0 { Ok(()) } else { Err(fleet.llm.in_flight()) }
    })
    .await;
    let second = world.worker(&fleet, Probe::default());
    let expected = bodies(&fleet, "clean");
    assert_eq!(expected.len(), 4);
    for (id, case, point, visit) in &cases {
        let row = fleet.ended(*id).await;
        assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"done": true})), "{case}: {row}");
        assert_eq!(row["retries"], 0, "{case}");
        assert_eq!(row["attempts"], if *point == Point::Concluded { 1 } else { 2 }, "{case}");
        let is_unknown =
            matches!((point, visit), (Point::TurnRecorded, 2) | (Point::BeforeCall, 2) | (Point::CallAnswered, 3));
        let bodies = bodies(&fleet, case);
        for (turn, sent) in &bodies {
            // Only an answer that was not recorded is asked for again, with the same bytes.
            let asked = if (point, visit) == (&Point::TurnAnswered, &(turn + 1)) { 2 } else { 1 };
            assert_eq!(sent.len(), asked, "{case}: turn {turn}");
            for body in sent {
                if is_unknown && *turn >= 2 {
                    assert!(body.contains("outcome_unknown"), "{case}: turn {turn}: {body}");
                } else {
                    assert_eq!(body, &expected[turn][0], "{case}: turn {turn}");
                }
            }
        }
        assert_eq!(bodies.len(), 4, "{case}");
        let (look, put, send) = (world.look.of(case), world.put.of(case), world.send.of(case));
        let repeats = |calls: &BTreeMap<String, usize>| (calls.len(), calls.values().sum::<usize>());
        for (name, calls) in [("look", look), ("put", put)] {
            // Under one key, and a second time only if the first result was not recorded.
            let (keys, runs) = repeats(&calls);
            assert_eq!(keys, 1, "{case}: {name}");
            let may_repeat = *point == Point::CallAnswered && *visit < 3;
            assert!(runs == 1 || (may_repeat && runs == 2), "{case}: {name} ran {runs} times");
        }
        let sent = if matches!((point, visit), (Point::TurnRecorded, 2) | (Point::BeforeCall, 2)) { 0 } else { 1 };
        assert_eq!(send.values().sum::<usize>(), sent, "{case}: send");
    }
    // By the model's own count, a key was asked twice only where no answer was recorded.
    let asked_twice = fleet.llm.calls().into_values().filter(|&count| count > 1).count();
    assert_eq!(asked_twice, 4);
    // With or without replay, validators saw the tools' writes before the correction and none after it.
    for seen in world.pads.seen() {
        let names: Vec<_> = seen.scratchpad.keys().map(String::as_str).collect();
        match seen.response.as_str() {
            "prose" => assert!(names == ["look", "put", "send"] || names == ["look", "put"], "{names:?}"),
            _ => assert_eq!(names, [""; 0]),
        }
    }
    second.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_finishes_the_step_and_spends_no_retry() {
    let fleet = quick_fleet().await;
    let (world, gate) = (World::new(&fleet).await, Gate::new());
    let value = json!({"value": "drained"});
    fleet.llm.push(reply_events([ev_text("I look. "), ev_gate(&gate), ev_call("c1", "send", &value)]));
    let first = world.worker(&fleet, Probe::default());
    let id = fleet.submit("d", json!({"case": "drained"})).await;
    gate.reached().await;
    first.begin_drain();
    gate.open();
    let row = fleet.until(id, "the execution is handed back", |row| row["wait_reason"] == "worker").await;
    assert_eq!((&row["attempts"], &row["retries"], &row["turns"]), (&json!(1), &json!(0), &json!(1)));
    first.drain().await;
    let attempt = fleet
        .json(
            "select jsonb_build_array(a.outcome, e.crash_count) from attempts a join executions e \
             on e.id = a.execution_id",
        )
        .await;
    assert_eq!(attempt, json!(["drained", 0]));
    // The drain did not launch the reply's call. The next worker runs it once, with a known outcome.
    assert!(world.send.of("drained").is_empty());
    let second = world.worker(&fleet, Probe::default());
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["retries"]), (&json!("FINISHED"), &json!(0)));
    assert_eq!(
        world.send.of("drained").into_values().sum::<usize>(),
        2,
        "once for each of the two turns that asked for it"
    );
    assert!(fleet.llm.calls().values().all(|&count| count == 1));
    let requests = fleet.llm.requests();
    assert!(requests.iter().all(|request| !String::from_utf8_lossy(&request.raw).contains("outcome_unknown")));
    second.drain().await;
}

/// The worker that made the call died; the next one is drained when it is about to repeat it.
#[tokio::test(flavor = "multi_thread")]
async fn drain_before_a_repeated_call_keeps_its_key() {
    let fleet = quick_fleet().await;
    fleet.apply(&agent_with(&["put"]), &definition("d", &["is_valid_json"])).await;
    let put = TestTool::recording("put", ToolEffect::Idempotent);
    // The call starts while the reply streams, so its intent is recorded.
    let gate = Gate::new();
    fleet.llm.push(reply_events([
        ev_call("c1", "put", &json!({"value": 1})),
        ev_call("c2", "put", &json!({"value": 2})),
        ev_gate(&gate),
    ]));
    fleet.llm.answer_with(|_| reply_text(r#"{"done": true}"#));
    let worker = |probe| fleet.worker_with(|builder| builder.tool(put.clone()).unwrap().probe(probe));
    let id = fleet.submit("d", json!({})).await;
    let holds = Holds::default();
    holds.plan(id, Point::CallAnswered, 1);
    let first = worker(holds.probe());
    holds.all_held().await;
    first.kill().await;
    fleet.bury_workers().await;
    let made = put.keys();
    assert_eq!(made.len(), 1);
    let (restored, drained) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let points = (restored.clone(), drained.clone());
    let second = worker(Probe::armed(move |point, _| {
        let (restored, drained) = points.clone();
        async move {
            if point == Point::Restored {
                restored.notify_one();
                drained.notified().await;
            }
        }
        .boxed()
    }));
    restored.notified().await;
    second.begin_drain();
    drained.notify_one();
    second.drain().await;
    let _third = worker(Probe::default());
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let key = made.keys().next().unwrap();
    assert_eq!(put.keys().get(key), Some(&2), "repeated under its key: {:?}", put.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_side_effect_records_a_new_intent() {
    let fleet = quick_fleet().await;
    let holds = Holds::default();
    let tool = TestTool::new("send", ToolEffect::SideEffect, |number, _, _| match number {
        0 => Err(ToolFailure::EndsRun(Failure::new(FailureClass::ToolError, FailureCode::TOOL_FAILED, "no line"))),
        _ => Ok("sent".into()),
    });
    fleet.apply(&agent_with(&["send"]), &definition("d", &["is_valid_json"])).await;
    let id = fleet.submit("d", json!({})).await;
    holds.plan(id, Point::CallAnswered, 2);
    let first = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap().probe(holds.probe()));
    fleet.llm.push(reply_calls([("send", json!({}))]));
    fleet.llm.push(reply_text("{}"));
    fleet.until(id, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
    fleet.advance(std::time::Duration::from_secs(11)).await;
    holds.all_held().await;
    first.kill().await;
    let second = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    // One run failed and one has an unknown outcome; there is no third.
    assert_eq!(tool.count(), 2);
    assert!(fleet.llm.requests()[1].last_text().contains("outcome_unknown"));
    second.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_run_keeps_its_tools_and_prompts() {
    let fleet = quick_fleet().await;
    let mcp = HttpMcp::start().await.unwrap();
    let server = McpServerSpec {
        command: Vec::new(),
        env: BTreeMap::new(),
        url: Some(mcp.url()),
        headers: BTreeMap::new(),
        allow: ["echo", "key", "pid"].map(str::to_owned).to_vec(),
        trusted: true,
        effects: BTreeMap::new(),
        idempotency_arguments: BTreeMap::new(),
        calls: BTreeMap::new(),
        timeout_seconds: None,
    };
    let mut agent = agent("a");
    agent.mcp_servers.insert("shelf".into(), server);
    fleet.apply(&agent, &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_calls([("mcp__shelf__echo", json!({"text": "hello"}))]));
    fleet.llm.push(reply_hang_up());
    let first = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    fleet.until(id, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
    first.drain().await;
    // Meanwhile the server lists its tools with other descriptions, and the agent's prompt has another space.
    mcp.observed.reworded.store(true, std::sync::atomic::Ordering::SeqCst);
    agent.prompts.agentic_execution_definition = Some("answer  in JSON".into());
    fleet.store.put_shared_agent(&agent).await.unwrap();
    let second = fleet.worker();
    fleet.llm.push(reply_text("{}"));
    fleet.advance(std::time::Duration::from_secs(11)).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let requests = fleet.llm.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[1].raw, requests[2].raw);
    assert!(!fleet.event_kinds(id).await.contains(&"journal_diverged".to_owned()));
    // A run that starts now uses the new descriptions and the new prompt.
    fleet.llm.push(reply_text("{}"));
    let id = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let fresh = fleet.llm.requests().pop().unwrap();
    assert_eq!(said(&fresh)[0].1, "answer  in JSON");
    assert_ne!(fresh.body["tools"], requests[2].body["tools"]);
    second.drain().await;
}

/// A tool whose description differs from build to build.
struct Worded(&'static str);

#[async_trait::async_trait]
impl longhaul_sdk::Tool for Worded {
    type Args = serde_json::Map<String, serde_json::Value>;

    fn name(&self) -> &'static str {
        "worded"
    }

    fn description(&self) -> &str {
        self.0
    }

    async fn call(
        &self,
        _: Self::Args,
        _: longhaul_sdk::ToolCallContext,
    ) -> Result<longhaul_sdk::ToolOutput, longhaul_sdk::ToolFailure> {
        Ok("said".into())
    }
}

/// A worker shares a prepared agent among its attempts, but not with one that began under other descriptions.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_run_keeps_tool_descriptions_of_its_build() {
    let fleet = quick_fleet().await;
    let mut agent = agent("a");
    agent.tools = vec![longhaul_sdk::spec::ToolRef::Name("worded".into())];
    fleet.apply(&agent, &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_calls([("worded", json!({}))]));
    fleet.llm.push(reply_hang_up());
    let first = fleet.worker_with(|builder| builder.tool(Worded("old words")).unwrap());
    let id = fleet.submit("d", json!({})).await;
    fleet.until(id, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
    first.drain().await;

    let second = fleet.worker_with(|builder| builder.tool(Worded("new words")).unwrap());
    fleet.llm.push(reply_text("{}"));
    let fresh = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(fresh).await["status"], "FINISHED");
    fleet.llm.push(reply_text("{}"));
    fleet.advance(std::time::Duration::from_secs(11)).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let requests = fleet.llm.requests();
    assert_eq!(requests.len(), 4);
    assert!(requests[2].body["tools"].to_string().contains("new words"));
    assert_eq!(requests[1].raw, requests[3].raw);
    second.drain().await;
}
