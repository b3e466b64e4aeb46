//! A worker dies at every named point of a run with parallel and early calls, references between them, an approval
//! and a correction.
//!
//! The points are those that an uninterrupted run passes, each as often as it passes it, and one execution dies at
//! each. The record at the worker's death decides which calls may repeat, not a table of expectations.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use longhaul_agent::probe::Point;
use longhaul_domain::{ApiKeyId, ExecutionId, RequestState};
use longhaul_sdk::{AgentSpec, DefinitionSpec, ValidatorResponse, spec::ValidatorRef};
use longhaul_store::human_requests::{Decider, NewDecision, Verdict};
use longhaul_testkit::model::{Captured, Gate, Reply, ev_call, ev_gate, ev_text, reply_events};
use serde_json::{Value, json};

use super::{
    durability::quick_fleet,
    kit::{ACT, PUT, Stage, WORK, referring, results_in_order},
};
use crate::{
    support::{
        fleet::{Fleet, FleetWorker, PATIENCE},
        wait::eventually,
    },
    worker::{journal::Holds, kit::TestValidator},
};

/// Calls of the run: name and tool. `act` needs an approval.
const PIECES: [(&str, &str); 4] = [("look", WORK), ("also", WORK), ("put", PUT), ("send", ACT)];

/// Each piece that is still missing, then an output that the validator refuses, then one that it accepts.
fn plan(request: &Captured, early: &Gates) -> Reply {
    let (case, turn) = (case_of(request), request.replies());
    let results: BTreeMap<String, String> = results_in_order(request).into_iter().collect();
    let has = |piece: &str| results.iter().any(|(id, text)| id.starts_with(piece) && !text.contains("\"error\""));
    let is_settled = |piece: &str| {
        has(piece) || results.iter().any(|(id, text)| id.starts_with(piece) && text.contains("outcome_unknown"))
    };
    let call = |piece: &str| {
        let (_, tool) = PIECES.into_iter().find(|(name, _)| *name == piece).unwrap();
        let mut arguments = match piece {
            "put" => json!({"value": ["†state.look", "†state.also"], "_outputPath": "†state.put"}),
            "send" => json!({"value": "†state.put"}),
            _ => json!({"value": piece, "_outputPath": format!("†state.{piece}")}),
        };
        arguments["call"] = json!(format!("{case}/{piece}"));
        ev_call(&format!("{piece}-{turn}"), tool, &arguments)
    };
    if turn == 0 {
        // The reply goes on only when its third call runs, so that all three start early.
        let calls = [call("look"), call("also"), call("put"), call("send")];
        return reply_events([ev_text("First. ")].into_iter().chain(calls).chain([ev_gate(&early.of(&case))]));
    }
    let missing: Vec<_> = ["look", "also", "put", "send"].into_iter().filter(|piece| !is_settled(piece)).collect();
    if !missing.is_empty() {
        return reply_events(missing.into_iter().map(call));
    }
    let is_final = results.keys().any(|id| id.starts_with("out"));
    let output = json!({ "output": { "put": "†state.put", "final": is_final } });
    reply_events([ev_call(&format!("out-{turn}"), "submit_output", &output)])
}

fn case_of(request: &Captured) -> String {
    let input: Value = serde_json::from_str(request.messages()[1]["content"].as_str().unwrap()).unwrap();
    input["case"].as_str().unwrap().to_owned()
}

/// One gate for each case.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<BTreeMap<String, Gate>>>);

impl Gates {
    fn of(&self, case: &str) -> Gate {
        self.0.lock().unwrap().entry(case.into()).or_default().clone()
    }
}

/// One execution that dies once.
struct Case {
    id: ExecutionId,
    name: String,
    point: Point,
    /// True if its request is decided before it dies.
    is_decided: bool,
}

/// State when the worker died.
struct Before {
    /// Number of runs of each piece.
    runs: BTreeMap<&'static str, usize>,
    /// Calls with a recorded result, by tool.
    done: BTreeMap<String, usize>,
    /// True if the intent of the side effect was recorded.
    is_intended: bool,
    /// Requests to the model, and recorded turns.
    asked: usize,
    turns: usize,
}

struct Play {
    fleet: Fleet,
    holds: Holds,
    stage: Stage,
    judge: TestValidator,
}

impl Play {
    async fn open() -> Self {
        let (mut fleet, early) = (quick_fleet().await, Gates::default());
        fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "60");
        let agent = AgentSpec {
            approvals: serde_json::from_value(json!({"rules": [{"tool": ACT, "access": "ask"}]})).unwrap(),
            ..referring()
        };
        let definition = DefinitionSpec {
            output_schema: Some(json!({"type": "object"})),
            validators: vec![ValidatorRef::Name("is_final".into())],
            ..DefinitionSpec::new("d", "a")
        };
        fleet.apply(&agent, &definition).await;
        let (gates, opened) = (early.clone(), early);
        fleet.llm.answer_with(move |request| plan(request, &gates));
        let stage = Stage::default().on_start(move |call| {
            if let Some((case, "put")) = call.split_once('/') {
                opened.of(case).open();
            }
        });
        let judge = TestValidator::new("is_final", |_, validation| {
            let output: Value = serde_json::from_str(validation.response).unwrap();
            if output["final"] == true { ValidatorResponse::success() } else { ValidatorResponse::retry("not final") }
        });
        Self { fleet, holds: Holds::default(), stage, judge }
    }

    fn worker(&self) -> FleetWorker {
        let probe = self.holds.probe();
        self.fleet.worker_with(|builder| self.stage.tools(builder).validator(self.judge.clone()).unwrap().probe(probe))
    }

    /// Waits until the execution is parked for its approval, and approves it.
    async fn approve(&self, id: ExecutionId, case: &str) {
        self.fleet.until(id, &format!("{case} waits for a person"), |row| row["wait_reason"] == "approval").await;
        let requests = self.fleet.store.requests_of(id).await.unwrap();
        let [request] = requests.as_slice() else { panic!("{case}: {requests:?}") };
        let decision = NewDecision {
            verdict: Verdict::Approve,
            hash: request.hash,
            by: Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "ops".into(), person: None },
            reason: None,
        };
        let decided = self.fleet.store.decide_request(self.fleet.tenant, request.id, &decision).await.unwrap();
        assert!(decided.is_some(), "{case}: {request:?}");
    }

    fn runs(&self, case: &str, piece: &str) -> usize {
        self.stage.runs(&format!("{case}/{piece}"))
    }

    fn asked(&self, case: &str) -> BTreeMap<String, usize> {
        let mut by_key = BTreeMap::new();
        for request in self.fleet.llm.requests().into_iter().filter(|request| case_of(request) == case) {
            *by_key.entry(request.idempotency_key.unwrap()).or_default() += 1;
        }
        by_key
    }

    async fn before(&self, case: &Case) -> Before {
        let steps: Vec<(String, Option<String>, String)> =
            sqlx::query_as("select kind, name, state from steps where execution_id = $1")
                .bind(case.id.0)
                .fetch_all(&self.fleet.db.pool)
                .await
                .unwrap();
        let mut done = BTreeMap::new();
        for (_, name, _) in steps.iter().filter(|(kind, _, state)| kind == "call" && state == "live") {
            *done.entry(name.clone().unwrap()).or_default() += 1;
        }
        Before {
            runs: PIECES.into_iter().map(|(piece, _)| (piece, self.runs(&case.name, piece))).collect(),
            done,
            is_intended: steps
                .iter()
                .any(|(kind, name, state)| kind == "call" && name.as_deref() == Some(ACT) && state == "intent"),
            asked: self.asked(&case.name).values().sum(),
            turns: steps.iter().filter(|(kind, ..)| kind == "turn").count(),
        }
    }

    /// Fails unless the case ended as the uninterrupted run did and repeated nothing that was recorded.
    async fn check(&self, case: &Case, before: &Before, attempts: usize) {
        let Case { id, name, point, .. } = case;
        let row = self.fleet.ended(*id).await;
        let output = json!({"put": ["look", "also"], "final": true});
        assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &output), "{name}: {row}");
        // At `Concluded` the attempt has ended, so no worker takes it over.
        let taken_over = usize::from(*point != Point::Concluded);
        // Counts attempts that began: a claim whose reply came too late is released before its attempt begins.
        let begun = self.holds.visits(*id, Point::Claimed);
        assert_eq!((&row["retries"], begun), (&json!(0), attempts + taken_over), "{name}: {row}");
        for (tool, wanted) in [(WORK, 2), (PUT, 1), (ACT, 1)] {
            let pieces = || PIECES.into_iter().filter(|(_, of)| *of == tool).map(|(piece, _)| piece);
            let again: usize = pieces().map(|piece| self.runs(name, piece) - before.runs[piece]).sum();
            // A side effect that may have happened is not repeated.
            let settled = if tool == ACT && before.is_intended { 1 } else { 0 };
            let open = wanted - settled - before.done.get(tool).copied().unwrap_or_default();
            assert_eq!(again, open, "{name}: {tool} ran {again} times after the death, {open} were open");
            for piece in pieces() {
                let keys = self.stage.keys(&format!("{name}/{piece}"));
                assert!(keys.len() <= 1, "{name}: {piece} ran under {keys:?}");
            }
        }
        assert!(self.runs(name, "send") <= 1, "{name}: a side effect is repeated");
        // A request without a recorded reply is made again under its key; no other is.
        let asked = self.asked(name);
        let repeated: usize = asked.values().map(|count| count - 1).sum();
        assert_eq!(repeated, before.asked - before.turns, "{name}: {asked:?}");
        let requests = self.fleet.store.requests_of(*id).await.unwrap();
        assert_eq!(
            requests.iter().map(|request| request.state).collect::<Vec<_>>(),
            [RequestState::Approved],
            "{name}"
        );
        let kinds = self.fleet.event_kinds(*id).await;
        for (kind, times) in [("approval_requested", 1), ("correction", 1), ("finished", 1)] {
            assert_eq!(kinds.iter().filter(|of| *of == kind).count(), times, "{name}: {kind} in {kinds:?}");
        }
        assert!(!kinds.contains(&"journal_diverged".to_owned()), "{name}: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_death_at_any_point_repeats_nothing_recorded() {
    let play = Play::open().await;
    let holds = &play.holds;
    let first = play.worker();
    let clean = play.fleet.submit("d", json!({"case": "clean"})).await;
    play.approve(clean, "clean").await;
    let row = play.fleet.ended(clean).await;
    assert_eq!(row["output"], json!({"put": ["look", "also"], "final": true}), "{row}");
    // `Concluded` is passed after the end is committed.
    let passed = eventually("the run has passed its last point", PATIENCE, async || {
        let passed = holds.passed(clean);
        if passed.last() == Some(&(Point::Concluded, 2)) { Ok(passed) } else { Err(format!("{passed:?}")) }
    })
    .await;
    let attempts = holds.visits(clean, Point::Claimed);
    // It starts no sub-agents.
    let is_elsewhere =
        |point: &Point| matches!(point, Point::Aggregated | Point::EpisodesWritten | Point::GraphWritten);
    for point in Point::ALL.into_iter().filter(|point| !is_elsewhere(point)) {
        assert!(passed.iter().any(|(at, _)| *at == point), "{point:?} is not passed: {passed:?}");
    }
    let resumed = passed.iter().position(|at| *at == (Point::Claimed, 2)).expect("it is claimed again, decided");
    let mut cases = Vec::new();
    for (at, (point, visit)) in passed.iter().copied().enumerate() {
        let name = format!("{point:?}-{visit}");
        let new = play.fleet.new_execution("d", json!({ "case": name })).await;
        holds.plan(new.id, point, visit);
        let id = play.fleet.submit_new(new).await;
        cases.push(Case { id, name, point, is_decided: at >= resumed });
    }
    for case in cases.iter().filter(|case| case.is_decided) {
        play.approve(case.id, &case.name).await;
    }
    holds.all_held().await;
    first.kill().await;
    play.fleet.bury_workers().await;
    let mut befores = Vec::new();
    for case in &cases {
        befores.push(play.before(case).await);
    }
    let second = play.worker();
    for case in cases.iter().filter(|case| !case.is_decided) {
        play.approve(case.id, &case.name).await;
    }
    for (case, before) in cases.iter().zip(&befores) {
        play.check(case, before, attempts).await;
    }
    second.drain().await;
}
