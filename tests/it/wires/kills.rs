//! A background response of an agent with a tool of its own and a function of the request: its worker dies at every
//! point of both its legs, and API processes die at every event of its streams.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use longhaul_agent::probe::Point;
use longhaul_domain::ExecutionId;
use longhaul_sdk::{AgentSpec, ToolEffect, spec::ToolRef};
use longhaul_testkit::model::{Captured, Gate, Reply, ev_call, ev_gate, ev_text, reply_events};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::{Bench, execution_of, frames, function};
use crate::{
    support::{
        api::Caller,
        fleet::{FleetWorker, PATIENCE, agent},
        process::ApiProcess,
        wait::eventually,
    },
    worker::{journal::Holds, kit::TestTool},
};

/// Turns of a run: a call of the agent's tool, one of the caller's function, the answer.
const TURNS: usize = 3;
/// Limit for a stream, whose run stands still until each other run stands.
const STREAM_LIMIT: Duration = Duration::from_secs(240);

/// Case of a request: what the caller said first.
fn case_of(request: &Captured) -> String {
    let said = request.messages().iter().find(|message| message["role"] == "user");
    said.unwrap()["content"].as_str().unwrap().to_owned()
}

/// One gate for each case: the first reply goes on when a call of it has begun.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<BTreeMap<String, Gate>>>);

impl Gates {
    fn of(&self, case: &str) -> Gate {
        self.0.lock().unwrap().entry(case.into()).or_default().clone()
    }
}

fn plan(request: &Captured, gates: &Gates) -> Reply {
    let case = case_of(request);
    let value = json!({ "value": case });
    match request.replies() {
        0 => reply_events([
            ev_text("I look. "),
            // The stream shows the end of a call by the begin of the next.
            ev_call("c1", "look", &value),
            ev_call("c2", "look", &value),
            ev_gate(&gates.of(&case)),
        ]),
        1 => reply_events([ev_text("And I ask. "), ev_call("c3", "weather", &json!({ "city": case }))]),
        _ => reply_events([ev_text("Cold, "), ev_text("and "), ev_text("windy.")]),
    }
}

struct Play {
    bench: Bench,
    gates: Gates,
    holds: Holds,
}

impl Play {
    async fn open() -> Self {
        let mut bench = Bench::of(AgentSpec { tools: vec![ToolRef::Name("look".into())], ..agent("helper") }).await;
        // Workers are declared dead by the test.
        bench.fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "60");
        let gates = Gates::default();
        let of_model = gates.clone();
        bench.fleet.llm.answer_with(move |request| plan(request, &of_model));
        Self { bench, gates, holds: Holds::default() }
    }

    fn worker(&self) -> FleetWorker {
        let (gates, probe) = (self.gates.clone(), self.holds.probe());
        let look = TestTool::new("look", ToolEffect::ReadOnly, move |_, value, _| {
            gates.of(value.as_str().unwrap()).open();
            Ok("seen".into())
        });
        self.bench.fleet.worker_with(|builder| builder.tool(look).unwrap().probe(probe))
    }

    async fn post(&self, body: &Value) -> Live {
        let request = self.bench.api.acme.request(Method::POST, "/v1/responses");
        Live::open(request.json(body)).await
    }

    /// Requests to the model in a case.
    fn asked(&self, case: &str) -> usize {
        self.bench.fleet.llm.requests().iter().filter(|request| case_of(request) == case).count()
    }

    /// Turns that are recorded, complete or begun.
    async fn turns(&self, id: ExecutionId) -> usize {
        let count: i64 = sqlx::query_scalar(
            "select count(*) from steps where execution_id = $1 and kind = 'turn' and state <> 'spent'",
        )
        .bind(id.0)
        .fetch_one(&self.bench.fleet.db.pool)
        .await
        .unwrap();
        usize::try_from(count).unwrap()
    }
}

fn first_body(case: &str) -> Value {
    let mut tool = function("weather");
    tool["type"] = json!("function");
    json!({ "model": "agent:helper", "input": case, "tools": [tool], "background": true, "stream": true })
}

/// The body that gives the result of the caller's function, whose call is in the stream of the first leg.
fn second_body(first: &str) -> Value {
    let events = frames(first);
    let response = &events.iter().find(|(event, _)| event == "response.completed").expect(first).1["response"];
    let call = response["output"].as_array().unwrap().iter().find(|item| item["name"] == "weather").expect(first);
    json!({
        "model": "agent:helper", "previous_response_id": response["id"], "background": true, "stream": true,
        "input": [{ "type": "function_call_output", "call_id": call["call_id"], "output": "2" }],
    })
}

/// A stream that is read frame by frame.
struct Live {
    response: Response,
    /// Frames that were taken.
    taken: String,
    rest: String,
}

impl Live {
    async fn open(request: RequestBuilder) -> Self {
        let response = request.timeout(STREAM_LIMIT).send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self { response, taken: String::new(), rest: String::new() }
    }

    /// The next frame with its empty line; `None` at the end.
    async fn frame(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.find("\n\n") {
                let rest = self.rest.split_off(end + 2);
                let frame = std::mem::replace(&mut self.rest, rest);
                if !frame.starts_with(':') {
                    self.taken.push_str(&frame);
                    return Some(frame);
                }
            } else {
                let chunk = self.response.chunk().await.unwrap()?;
                self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        }
    }

    /// The whole stream.
    async fn read(&mut self) -> String {
        while self.frame().await.is_some() {}
        std::mem::take(&mut self.taken)
    }
}

/// Id of the response that a frame holds.
fn id_in(frame: &str) -> String {
    frames(frame)[0].1["response"]["id"].as_str().expect(frame).to_owned()
}

/// The stream of a response is `text` for this caller, from the start and after each event.
async fn is_told_alike(caller: &Caller, text: &str, case: &str) {
    let path = format!("/v1/responses/{}?stream=true", id_in(text));
    let whole = caller.get(&path).await.text;
    assert_eq!(whole, text, "{case}");
    let events: Vec<&str> = text.split_inclusive("\n\n").collect();
    // The last frame is `[DONE]`.
    let resumed = (0..events.len() - 1).map(|after| {
        let path = format!("{path}&starting_after={after}");
        async move { caller.get(&path).await.text }
    });
    for (after, resumed) in join_all(resumed).await.iter().enumerate() {
        assert_eq!(*resumed, events[after + 1..].concat(), "{case} after {after}");
    }
}

/// The answer in a stream: the text of its completed messages.
fn answer_of(text: &str) -> String {
    let events = frames(text);
    let (event, data) = &events[events.len() - 2];
    assert_eq!(event, "response.completed", "{text}");
    let items = data["response"]["output"].as_array().unwrap();
    let whole = items.iter().filter(|item| item["status"] == "completed");
    whole.filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

struct Case {
    name: String,
    id: ExecutionId,
    /// Stream of the leg in which the worker dies.
    live: Live,
    /// Stream of the first leg, if it has ended before that.
    first: Option<String>,
}

/// The points that a run passes undisturbed, each with the number of its leg.
async fn passed_in_legs(play: &Play) -> Vec<(Point, usize, usize)> {
    let first = play.post(&first_body("clean")).await.read().await;
    let id = execution_of(&id_in(&first));
    let second = play.post(&second_body(&first)).await.read().await;
    assert_eq!(answer_of(&second), "Cold, and windy.");
    let passed = eventually("the run has passed its last point", PATIENCE, async || {
        let passed = play.holds.passed(id);
        if passed.last() == Some(&(Point::Concluded, 2)) { Ok(passed) } else { Err(format!("{passed:?}")) }
    })
    .await;
    let is_elsewhere =
        |point: &Point| matches!(point, Point::Aggregated | Point::EpisodesWritten | Point::GraphWritten);
    for point in Point::ALL.into_iter().filter(|point| !is_elsewhere(point)) {
        assert!(passed.iter().any(|(at, _)| *at == point), "{point:?} is not passed: {passed:?}");
    }
    let ends = passed.iter().position(|at| *at == (Point::Concluded, 1)).unwrap();
    let legs = passed.into_iter().enumerate();
    legs.map(|(at, (point, visit))| (point, visit, if at <= ends { 1 } else { 2 })).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn background_response_survives_a_death_at_any_point() {
    let play = Play::open().await;
    let clean_worker = play.worker();
    let points = passed_in_legs(&play).await;
    clean_worker.drain().await;

    let (mut cases, mut legs) = (Vec::new(), BTreeMap::new());
    for (point, visit, leg) in points {
        let name = format!("{point:?}-{visit}");
        let mut live = play.post(&first_body(&name)).await;
        let id = execution_of(&id_in(&live.frame().await.unwrap()));
        play.holds.plan(id, point, visit);
        legs.insert(name.clone(), leg);
        cases.push(Case { name, id, live, first: None });
    }
    let doomed = play.worker();
    for case in cases.iter_mut().filter(|case| legs[&case.name] == 2) {
        let first = case.live.read().await;
        case.live = play.post(&second_body(&first)).await;
        case.first = Some(first);
    }
    play.holds.all_held().await;
    doomed.kill().await;
    // First, because a write that was under way at the kill may still be committed until then.
    play.bench.fleet.bury_workers().await;
    let mut before = BTreeMap::new();
    for case in &cases {
        before.insert(case.name.clone(), (play.asked(&case.name), play.turns(case.id).await));
    }
    let _survivor = play.worker();
    let beside = play.bench.api.beside().await;
    let other = Caller { url: beside.acme.url.clone(), ..play.bench.api.acme.clone() };
    for Case { name, id, mut live, first } in cases {
        let ended = live.read().await;
        let (first, second) = match first {
            Some(first) => (first, ended),
            None => {
                let second = play.post(&second_body(&ended)).await.read().await;
                (ended, second)
            }
        };
        assert_eq!(answer_of(&second), "Cold, and windy.", "{name}");
        assert_eq!(play.bench.fleet.ended(id).await["status"], "FINISHED", "{name}");
        for leg in [&first, &second] {
            is_told_alike(&other, leg, &name).await;
        }
        // Only a reply that was not recorded is asked for again.
        let (asked, turns) = before[&name];
        assert_eq!(play.asked(&name), asked + TURNS - turns, "{name}: a recorded call is repeated");
        assert!(asked <= turns + 1, "{name}: {asked} requests for {turns} turns");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_processes_die_at_every_event() {
    let mut play = Play::open().await;
    let _worker = play.worker();
    let mut told: Vec<String> = Vec::new();
    let mut body = first_body("told");
    for leg in 1..=2 {
        let api = ApiProcess::start(&mut play.bench.fleet).await;
        let mut live = Live::open(api.request(Method::POST, "responses").json(&body)).await;
        let mut text = live.frame().await.unwrap();
        drop(api);
        let id = id_in(&text);
        for after in 0.. {
            let api = ApiProcess::start(&mut play.bench.fleet).await;
            let path = format!("responses/{id}?stream=true&starting_after={after}");
            let mut live = Live::open(api.request(Method::GET, &path)).await;
            let frame = live.frame().await.unwrap();
            drop(api);
            text.push_str(&frame);
            if frame.contains("[DONE]") {
                break;
            }
        }
        if leg == 1 {
            body = second_body(&text);
        }
        told.push(text);
    }
    assert_eq!(answer_of(&told[1]), "Cold, and windy.");
    assert_eq!(play.asked("told"), TURNS);
    let api = ApiProcess::start(&mut play.bench.fleet).await;
    for text in &told {
        let path = format!("responses/{}?stream=true", id_in(text));
        assert_eq!(Live::open(api.request(Method::GET, &path)).await.read().await, *text);
    }
    let kinds: BTreeSet<String> = told.iter().flat_map(|text| frames(text)).map(|(event, _)| event).collect();
    assert!(kinds.contains("response.function_call_arguments.done"), "{kinds:?}");
}
