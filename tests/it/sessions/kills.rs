//! A message arrives under each policy while its session's worker stands at each named point, and then that worker
//! dies. The points are those that an uninterrupted run passes, one session for each.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use longhaul_agent::probe::Point;
use longhaul_domain::{ApiKeyId, ExecutionId, RequestState};
use longhaul_sdk::{AgentSpec, ToolEffect, spec::ModelSpec};
use longhaul_store::{
    history::journal::{JournalStep, Loaded, StepKind, StepState},
    human_requests::{Decider, NewDecision, Verdict},
};
use longhaul_testkit::model::{
    Captured, Gate, Reply, ev_call, ev_gate, ev_text, reply_calls, reply_events, reply_text,
};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::{Service, id_of};
use crate::{
    support::{
        fleet::{FleetWorker, PATIENCE},
        wait::eventually,
    },
    worker::{
        journal::{Holds, quick_fleet},
        kit::{TestTool, agent_with},
    },
};

/// Case of a request: the word after `one` or `two` in the caller's last message.
fn case_of(request: &Captured) -> (bool, String) {
    let texts = request.messages().iter().filter(|message| message["role"] == "user");
    let last = texts.filter_map(|message| message["content"].as_str()).next_back().unwrap().to_owned();
    // Messages in a row are sent as one.
    let last = last.rsplit("\n\n").next().unwrap();
    let (which, case) = last.split_once(' ').unwrap();
    (which == "one", case.to_owned())
}

/// Replies since the caller's last message.
fn replies(request: &Captured) -> usize {
    let messages = request.messages();
    let last = messages.iter().rposition(|message| message["role"] == "user").unwrap();
    messages[last..].iter().filter(|message| message["role"] == "assistant").count()
}

/// A call that starts while its reply streams, a call that needs an approval, and an answer.
fn plan(request: &Captured, gates: &Gates) -> Reply {
    let (is_first, case) = case_of(request);
    match (is_first, replies(request)) {
        (true, 0) => reply_events([
            ev_text("I look. "),
            // The stream shows the end of a call by the begin of the next.
            ev_call("c1", "look", &json!({ "value": case })),
            ev_call("c2", "look", &json!({ "value": case })),
            ev_gate(&gates.of(&case)),
        ]),
        (true, 1) => reply_calls([("pay", json!({ "value": case }))]),
        (true, _) => reply_text("paid"),
        (false, _) => reply_text("second"),
    }
}

/// One gate for each case.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<BTreeMap<String, Gate>>>);

impl Gates {
    fn of(&self, case: &str) -> Gate {
        self.0.lock().unwrap().entry(case.into()).or_default().clone()
    }
}

struct Case {
    name: String,
    session: String,
    first: ExecutionId,
}

/// State when the worker died.
#[derive(Debug)]
struct Before {
    /// Requests for the first message.
    asked: usize,
    /// Recorded turns, complete or begun.
    turns: usize,
    /// Complete recorded turns; one of them may be a reply that its worker kept when it heard of the interrupt.
    whole_turns: usize,
    /// Calls of the complete turns.
    calls: usize,
    /// True if the side effect had begun.
    has_effect: bool,
}

struct Play {
    service: Service,
    holds: Holds,
    gates: Gates,
    /// Executions that are not approved.
    refused: Arc<Mutex<HashSet<ExecutionId>>>,
    /// Cases whose side effect took place.
    paid: Arc<Mutex<HashSet<String>>>,
    _approver: AbortOnDropHandle<()>,
}

impl Play {
    async fn open() -> Self {
        let mut fleet = quick_fleet().await;
        fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "60");
        let own = AgentSpec {
            approvals: serde_json::from_value(json!({ "rules": [{ "tool": "pay", "access": "ask" }] })).unwrap(),
            model: ModelSpec { stream: true, ..ModelSpec::default() },
            ..agent_with(&["look", "pay"])
        };
        let service = Service::of(fleet, own).await;
        let gates = Gates::default();
        let of_model = gates.clone();
        service.fleet.llm.answer_with(move |request| plan(request, &of_model));
        let refused = Arc::default();
        let approver = approve_what_waits(&service, Arc::clone(&refused));
        Self { service, holds: Holds::default(), gates, refused, paid: Arc::default(), _approver: approver }
    }

    fn worker(&self) -> FleetWorker {
        let gates = self.gates.clone();
        let look = TestTool::new("look", ToolEffect::ReadOnly, move |_, value, _| {
            gates.of(value.as_str().unwrap()).open();
            Ok("seen".into())
        });
        let paid = Arc::clone(&self.paid);
        let pay = TestTool::new("pay", ToolEffect::SideEffect, move |_, value, _| {
            paid.lock().unwrap().insert(value.as_str().unwrap().to_owned());
            Ok("done".into())
        });
        let probe = self.holds.probe();
        self.service.fleet.worker_with(|builder| builder.tool(look).unwrap().tool(pay).unwrap().probe(probe))
    }

    /// Requests for the first message of a case.
    fn asked(&self, case: &str) -> usize {
        let requests = self.service.fleet.llm.requests();
        requests.iter().filter(|request| case_of(request) == (true, case.to_owned())).count()
    }

    async fn before(&self, case: &Case) -> Before {
        let store = &self.service.fleet.store;
        let Loaded::Journal(journal) = store.load_journal(case.first, u8::MAX).await.unwrap() else {
            panic!("a format of the future")
        };
        let steps: Vec<JournalStep> = journal.steps.into_iter().filter(|step| step.state != StepState::Spent).collect();
        let calls: i64 = sqlx::query_scalar(
            "select coalesce(sum((data ->> 'calls')::int), 0) from events where execution_id = $1 and kind = 'turn'",
        )
        .bind(case.first.0)
        .fetch_one(&self.service.fleet.db.pool)
        .await
        .unwrap();
        // A call that was asked for and not begun has no effect; one in which its worker was cancelled has an answer
        // with an unknown outcome.
        let is_effect = |step: &JournalStep| {
            let body: Value = serde_json::from_slice(&step.body).unwrap();
            step.kind == StepKind::Call && body["effect"] == "side_effect"
        };
        // A turn that its worker refused when it heard of the cancel never ran.
        let is_turn =
            |step: &&JournalStep| step.kind == StepKind::Turn && step.failure_code.as_deref() != Some("cancelled");
        let turns: Vec<_> = steps.iter().filter(is_turn).collect();
        Before {
            asked: self.asked(&case.name),
            turns: turns.len(),
            whole_turns: turns.iter().filter(|step| step.state == StepState::Live).count(),
            calls: usize::try_from(calls).unwrap(),
            has_effect: steps.iter().any(is_effect) || self.paid.lock().unwrap().contains(&case.name),
        }
    }
}

/// Approves each request once its execution is parked for it.
fn approve_what_waits(service: &Service, refused: Arc<Mutex<HashSet<ExecutionId>>>) -> AbortOnDropHandle<()> {
    let (store, pool, tenant) = (service.fleet.store.clone(), service.fleet.db.pool.clone(), service.api.tenant);
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let parked: Vec<uuid::Uuid> =
                sqlx::query_scalar("select id from executions where wait_reason = 'approval'")
                    .fetch_all(&pool)
                    .await
                    .unwrap_or_default();
            for id in parked.into_iter().map(ExecutionId) {
                if refused.lock().unwrap().contains(&id) {
                    continue;
                }
                for request in store.requests_of(id).await.unwrap_or_default() {
                    let decision = NewDecision {
                        verdict: Verdict::Approve,
                        hash: request.hash,
                        by: Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "ops".into(), person: None },
                        reason: None,
                    };
                    let _ = store.decide_request(tenant, request.id, &decision).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }))
}

/// The messages of an uninterrupted first message.
const WHOLE: [&str; 5] = ["assistant: I look. ", "tool: seen", "assistant: ", "tool: done", "assistant: paid"];

/// Lines of the first message in a transcript.
fn first_message(case: &str) -> Vec<String> {
    let said = WHOLE.iter().map(|line| (*line).to_owned());
    [format!("user: one {case}")].into_iter().chain(said).collect()
}

/// Lines of the second message.
fn second_message(case: &str) -> Vec<String> {
    vec![format!("user: two {case}"), "assistant: second".to_owned()]
}

async fn dies_at_every_point(policy: &str) {
    let play = Play::open().await;
    let (service, holds) = (&play.service, &play.holds);
    let first_worker = play.worker();
    let clean = service.begin(json!({})).await;
    let first = id_of(&service.send(&clean, "one clean").await);
    assert_eq!(service.fleet.ended(first).await["status"], "FINISHED");
    let passed = eventually("the run has passed its last point", PATIENCE, async || {
        let passed = holds.passed(first);
        if passed.last() == Some(&(Point::Concluded, 2)) { Ok(passed) } else { Err(format!("{passed:?}")) }
    })
    .await;
    // It starts no sub-agents.
    let is_elsewhere =
        |point: &Point| matches!(point, Point::Aggregated | Point::EpisodesWritten | Point::GraphWritten);
    for point in Point::ALL.into_iter().filter(|point| !is_elsewhere(point)) {
        assert!(passed.iter().any(|(at, _)| *at == point), "{point:?} is not passed: {passed:?}");
    }
    let mut told = service.transcript(&clean).await;
    told.dedup();
    assert_eq!(told[1..], first_message("clean"));
    first_worker.drain().await;

    let mut cases = Vec::new();
    for (point, visit) in passed {
        let name = format!("{point:?}-{visit}");
        let session = service.begin(json!({ "on_busy": policy })).await;
        let sent = service.send(&session, &format!("one {name}")).await;
        holds.plan(id_of(&sent), point, visit);
        if (point, visit) == (Point::Concluded, 1) {
            // Its attempt has ended, so an approval would make it go on.
            play.refused.lock().unwrap().insert(id_of(&sent));
        }
        cases.push(Case { name, session, first: id_of(&sent) });
    }
    let doomed = play.worker();
    holds.all_held().await;
    let mut seconds = Vec::new();
    for case in &cases {
        seconds.push(service.send(&case.session, &format!("two {}", case.name)).await);
    }
    doomed.kill().await;
    // First, because a write that was under way at the kill may still be committed until then.
    service.fleet.bury_workers().await;
    let mut befores = Vec::new();
    for case in &cases {
        befores.push(play.before(case).await);
    }
    play.refused.lock().unwrap().clear();
    let _survivor = play.worker();
    for ((case, before), second) in cases.iter().zip(&befores).zip(&seconds) {
        let name = &case.name;
        let row = service.fleet.ended(case.first).await;
        if second.status == 202 {
            assert_eq!(service.fleet.ended(id_of(second)).await["status"], "FINISHED", "{name}");
        }
        let told = service.transcript(&case.session).await;
        let mut once = told.clone();
        // A reply that broke after its first call had begun counts without the second.
        once.dedup();
        for line in &mut once {
            if before.has_effect && line.contains("outcome_unknown") {
                "tool: done".clone_into(line);
            }
        }
        let is_idle = name == "Concluded-2";
        match policy {
            "reject" if !is_idle => {
                assert_eq!(second.error(), (409, "session_busy"), "{name}");
                assert_eq!(once[1..], first_message(name), "{name}");
            }
            "reject" | "enqueue" => {
                assert_eq!(second.status, 202, "{name}: {}", second.text);
                assert_eq!(once[1..], [first_message(name), second_message(name)].concat(), "{name}");
            }
            "interrupt" => interrupted(name, &row, before, &told),
            "rollback" => rolled_back(name, &row, before, &told),
            _ => panic!("{policy}"),
        }
        // A request without a recorded reply is made again, unless the policy stops the message; no other is.
        let open = if row["status"] == "FINISHED" { 3 - before.turns } else { 0 };
        assert_eq!(play.asked(name), before.asked + open, "{name}: a recorded call is repeated");
        let requests = service.fleet.store.requests_of(case.first).await.unwrap();
        let is_settled = |state| matches!(state, RequestState::Approved | RequestState::Closed);
        assert!(requests.iter().all(|request| is_settled(request.state)), "{name}: {requests:?}");
    }
}

/// What was recorded stays, each call has a result, and the second message follows.
fn interrupted(name: &str, row: &Value, before: &Before, told: &[String]) {
    let (said, second) = told.split_at(told.len() - 2);
    assert_eq!(second, second_message(name), "{name}");
    if row["status"] == "FINISHED" {
        assert!(said.ends_with(&["assistant: paid".to_owned()]), "{name}: {said:?}");
        return;
    }
    assert_eq!(row["failure_code"], "cancelled", "{name}: {row}");
    let replies = said.iter().filter(|line| line.starts_with("assistant:")).count();
    assert_eq!(replies, before.turns.max(before.whole_turns), "{name}: {said:?}");
    let results = said.iter().filter(|line| line.starts_with("tool:")).count();
    assert_eq!(results, before.calls, "{name}: {said:?}");
    assert!(said.contains(&format!("user: one {name}")), "{name}: {said:?}");
}

/// Nothing of the first message stays but a note of its effects.
fn rolled_back(name: &str, row: &Value, before: &Before, told: &[String]) {
    let (said, second) = told.split_at(told.len() - 2);
    assert_eq!(second, second_message(name), "{name}");
    if row["status"] == "FINISHED" {
        assert!(said.ends_with(&["assistant: paid".to_owned()]), "{name}: {said:?}");
        return;
    }
    assert_eq!(row["failure_code"], "cancelled", "{name}: {row}");
    let notes: Vec<&String> = said.iter().filter(|line| line.contains("withdrawn")).collect();
    assert_eq!(notes.len(), usize::from(before.has_effect), "{name}: {said:?}, after {before:?}");
    assert!(notes.iter().all(|note| note.contains("pay")), "{name}: {said:?}");
    assert!(!said.iter().any(|line| line.starts_with("user: one")), "{name}: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reject_survives_a_death_at_any_point() {
    dies_at_every_point("reject").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_survives_a_death_at_any_point() {
    dies_at_every_point("enqueue").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupt_survives_a_death_at_any_point() {
    dies_at_every_point("interrupt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_survives_a_death_at_any_point() {
    dies_at_every_point("rollback").await;
}
