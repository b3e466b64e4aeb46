//! State that survives the death of a worker in the middle of a tick.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use longhaul_agent::probe::{Point, Probe};
use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    JsonSchema, Reconciled, Tool, ToolCallContext, ToolFailure, ToolOutput, async_trait, spec::ToolRef,
};
use longhaul_store::{executions::control::Cancelled, history::ledger::EffectState};
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_events, reply_text};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kit::{ACT, PUT, Stage, WORK, any_answer, call_of, ledger, referring, results_in_order, work};
use crate::support::fleet::{Fleet, FleetWorker, PATIENCE};

/// A fleet that detects dead workers within seconds.
pub(super) async fn quick_fleet() -> Fleet {
    let mut fleet = Fleet::start().await;
    for (name, seconds) in [("LEASE", "4"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
        fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
    }
    fleet
}

pub(super) fn worker(fleet: &Fleet, stage: &Stage, probe: Probe) -> FleetWorker {
    fleet.worker_with(|builder| stage.tools(builder).probe(probe))
}

/// Holds an execution for ever at its `visit`th visit of a point. The gate tells when it is there.
pub(super) fn held_at(point: Point, visit: usize) -> (Probe, Gate) {
    let (there, visits) = (Gate::new(), Arc::new(Mutex::new(0)));
    let reached = there.clone();
    let probe = Probe::armed(move |at, _| {
        if at == point {
            let mut visits = visits.lock().unwrap();
            *visits += 1;
            if *visits == visit {
                let reached = reached.clone();
                return async move { reached.pass().await }.boxed();
            }
        }
        std::future::ready(()).boxed()
    });
    (probe, there)
}

/// Recorded calls of an execution in order: tool and state.
async fn calls(fleet: &Fleet, id: ExecutionId) -> Vec<(String, String)> {
    sqlx::query_as("select name, state from steps where execution_id = $1 and kind = 'call' order by seq")
        .bind(id.0)
        .fetch_all(&fleet.db.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_idempotent_call_reruns_with_its_key_c49() {
    let (fleet, stage) = (quick_fleet().await, Stage::default().hold("first"));
    fleet.apply(&referring(), &any_answer()).await;
    fleet.llm.push(reply_events([call_of(PUT, "first", json!({})), work("beside", json!({}))]));
    fleet.llm.push(reply_text("done"));
    let id = fleet.submit("d", json!({})).await;
    let dies = worker(&fleet, &stage, Probe::default());
    stage.ended("beside").await;
    stage.started("first").await;
    dies.kill().await;
    stage.release("first");
    let second = worker(&fleet, &stage, Probe::default());
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("FINISHED"), &json!(2)));
    assert_eq!((stage.runs("first"), stage.keys("first").len()), (2, 1));
    let told = results_in_order(&fleet.llm.requests()[1]);
    assert_eq!(told.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["first", "beside"]);
    second.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_side_effect_is_outcome_unknown_c50() {
    let (fleet, stage) = (quick_fleet().await, Stage::default().hold("effect"));
    fleet.apply(&referring(), &any_answer()).await;
    fleet.llm.push(reply_events([
        call_of(ACT, "effect", json!({"_outputPath": "†state.x"})),
        work("reads", json!({"value": "†state.x"})),
    ]));
    fleet.llm.push(reply_text("done"));
    let id = fleet.submit("d", json!({})).await;
    let dies = worker(&fleet, &stage, Probe::default());
    stage.started("effect").await;
    dies.kill().await;
    let second = worker(&fleet, &stage, Probe::default());
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!((stage.runs("effect"), stage.runs("reads")), (1, 0));
    let told = results_in_order(&fleet.llm.requests()[1]);
    assert!(told[0].1.contains("\"outcome_unknown\"") && told[1].1.contains("\"dependency_failed\""), "{told:?}");
    second.drain().await;
}

/// Call, key and tenant of each reconciliation.
type Reconciliations = Arc<Mutex<Vec<(String, String, Option<String>)>>>;

/// A tool that reconciles a call by its key.
struct Ledgered {
    says: Reconciled,
    stage: Stage,
    asked: Reconciliations,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Order {
    call: String,
}

#[async_trait]
impl Tool for Ledgered {
    type Args = Order;

    fn name(&self) -> &str {
        "order"
    }

    fn description(&self) -> &str {
        "Orders."
    }

    async fn call(&self, args: Order, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        self.stage.visit(&args.call, &context.idempotency_key).await;
        Ok("ordered".into())
    }

    async fn reconcile(&self, args: Order, context: ToolCallContext) -> Reconciled {
        self.asked.lock().unwrap().push((args.call, context.idempotency_key, context.tenant_id));
        self.says.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciling_tool_settles_an_interrupted_call() {
    for (says, runs, told) in [
        (Reconciled::Done("order 7".into()), 1, "order 7"),
        (Reconciled::NotDone, 2, "ordered"),
        (Reconciled::Unknown, 1, "outcome_unknown"),
    ] {
        let (fleet, stage, asked) = (quick_fleet().await, Stage::default().hold("seven"), Arc::default());
        let mut agent = referring();
        agent.tools.push(ToolRef::Name("order".into()));
        fleet.apply(&agent, &any_answer()).await;
        fleet.llm.push(reply_events([call_of("order", "seven", json!({}))]));
        fleet.llm.push(reply_text("done"));
        let id = fleet.submit("d", json!({})).await;
        let start = |asked: &Reconciliations| {
            let tool = Ledgered { says: says.clone(), stage: stage.clone(), asked: asked.clone() };
            fleet.worker_with(|builder| stage.tools(builder).tool(tool).unwrap())
        };
        let dies = start(&asked);
        stage.started("seven").await;
        dies.kill().await;
        stage.release("seven");
        let second = start(&asked);
        assert_eq!(fleet.ended(id).await["status"], "FINISHED", "{says:?}");
        assert_eq!((stage.runs("seven"), stage.keys("seven").len()), (runs, 1), "{says:?}");
        // The call was reconciled once, by its key and for its tenant.
        let key = stage.keys("seven").into_keys().next().unwrap();
        let once = [("seven".to_owned(), key, Some(fleet.tenant.to_string()))];
        assert_eq!(*asked.lock().unwrap(), once, "{says:?}");
        let results = results_in_order(&fleet.llm.requests()[1]);
        assert!(results[0].1.contains(told), "{says:?}: {results:?}");
        second.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn death_between_tick_and_request_repeats_no_tool_c51() {
    let (fleet, stage) = (quick_fleet().await, Stage::default());
    fleet.apply(&referring(), &any_answer()).await;
    fleet.llm.push(reply_events([
        work("writes", json!({"value": 1, "_outputPath": "†state.n"})),
        call_of(ACT, "effect", json!({"value": "†state.n"})),
    ]));
    let id = fleet.submit("d", json!({})).await;
    let (probe, there) = held_at(Point::BeforeTurn, 2);
    let dies = worker(&fleet, &stage, probe);
    there.reached().await;
    dies.kill().await;
    // The state is restored: the next turn reads it.
    fleet.llm.push(reply_events([work("later", json!({"value": ["†state.n", "†calls.effect"]}))]));
    fleet.llm.push(reply_text("done"));
    let second = worker(&fleet, &stage, Probe::default());
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!((stage.runs("writes"), stage.runs("effect")), (1, 1));
    assert_eq!(stage.arguments("later")["value"], json!([1, 1]));
    assert!(fleet.llm.calls().values().all(|&count| count == 1));
    second.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redelivered_execution_makes_progress_once_c52() {
    let (fleet, stage) = (Fleet::start().await, Stage::default().hold("only"));
    fleet.apply(&referring(), &any_answer()).await;
    fleet.llm.push(reply_events([call_of(ACT, "only", json!({}))]));
    let workers = [worker(&fleet, &stage, Probe::default()), worker(&fleet, &stage, Probe::default())];
    let id = fleet.submit("d", json!({})).await;
    stage.started("only").await;
    for _ in 0..50 {
        fleet.publisher.wake("default", id);
    }
    // An execution announced later has run, so workers have looked at the earlier wake-ups.
    fleet.llm.push(reply_text("other"));
    let other = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(other).await["status"], "FINISHED");
    fleet.llm.push(reply_text("done"));
    stage.release("only");
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("FINISHED"), &json!(1)));
    assert_eq!(stage.runs("only"), 1);
    for worker in workers {
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_mid_tick_answers_calls_and_launches_none_c53() {
    let (fleet, stage) = (quick_fleet().await, Stage::default().hold("runs"));
    fleet.apply(&referring(), &any_answer()).await;
    fleet.llm.push(reply_events([
        work("done", json!({})),
        call_of(ACT, "runs", json!({"value": 1, "_outputPath": "†state.x"})),
        work("waits", json!({"value": "†state.x"})),
    ]));
    let id = fleet.submit("d", json!({})).await;
    let worker = worker(&fleet, &stage, Probe::default());
    stage.ended("done").await;
    stage.started("runs").await;
    assert_ne!(fleet.store.cancel_execution(fleet.tenant, id).await.unwrap(), Cancelled::Ended);
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("cancelled")));
    let mut recorded = calls(&fleet, id).await;
    recorded.sort();
    let live = |tool: &str| (tool.to_owned(), "live".to_owned());
    assert_eq!(recorded, [live(ACT), live(WORK), live(WORK)]);
    assert_eq!(ledger(&fleet, id).await, [(ACT.to_owned(), EffectState::Unknown)]);
    stage.release("runs");
    assert_eq!(stage.runs("waits"), 0);
    assert_eq!(fleet.llm.requests().len(), 1);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_begun_before_a_death_is_never_asked_again() {
    let (fleet, stage, rest) = (quick_fleet().await, Stage::default(), Gate::new());
    fleet.apply(&referring(), &any_answer()).await;
    // Two calls start early; the third is incomplete when the worker dies.
    fleet.llm.push(reply_events([
        ev_text("I look. "),
        work("early", json!({"value": 1, "_outputPath": "†state.n"})),
        work("second", json!({"value": "†state.n"})),
        work("cut", json!({})),
        ev_gate(&rest),
    ]));
    let id = fleet.submit("d", json!({})).await;
    let dies = worker(&fleet, &stage, Probe::default());
    stage.ended("second").await;
    dies.kill().await;
    // The model would reply otherwise now, but is not asked for that turn again.
    fleet.llm.push(reply_text("done"));
    let second = worker(&fleet, &stage, Probe::default());
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    rest.open();
    let requests = fleet.llm.requests();
    assert_eq!(requests.len(), 2);
    assert!(fleet.llm.calls().values().all(|&count| count == 1));
    let told = results_in_order(&requests[1]);
    assert_eq!(
        told.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect::<Vec<_>>(),
        [("early", "1"), ("second", "1")]
    );
    let reply = requests[1].messages().iter().find(|message| message["role"] == "assistant").unwrap();
    assert_eq!(reply["content"], "I look. ");
    assert_eq!(stage.runs("early"), 1);
    second.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_shows_the_state_of_every_effect() {
    let mut fleet = quick_fleet().await;
    let api = crate::worker::typed::Api::start(&mut fleet).await;
    let stage = Stage::default().hold("lost").fails("refused", "no");
    fleet.apply(&referring(), &any_answer()).await;
    fleet.llm.push(reply_events([
        work("look", json!({})),
        call_of(PUT, "kept", json!({})),
        call_of(ACT, "refused", json!({})),
        call_of(ACT, "lost", json!({})),
    ]));
    let id = fleet.submit("d", json!({})).await;
    let dies = worker(&fleet, &stage, Probe::default());
    for call in ["kept", "refused"] {
        stage.ended(call).await;
    }
    stage.started("lost").await;
    let seen = async || api.get(&format!("/executions/{id}/ledger")).await["entries"].as_array().unwrap().clone();
    let states = |entries: &[Value]| {
        let facts = |entry: &Value| json!([entry["tool"], entry["effect"], entry["state"]]);
        let mut facts: Vec<String> = entries.iter().map(|entry| facts(entry).to_string()).collect();
        facts.sort();
        facts
    };
    let with = |last: &str| {
        let kept = r#"["put","idempotent","done"]"#.to_owned();
        let mut all =
            vec![kept, r#"["act","side_effect","failed"]"#.into(), format!(r#"["act","side_effect","{last}"]"#)];
        all.sort();
        all
    };
    // While it runs it is only intended; read-only calls are not in the ledger.
    crate::support::wait::eventually("both results are recorded", PATIENCE, || async {
        let states = states(&seen().await);
        if states == with("intended") { Ok(()) } else { Err(states.join(" ")) }
    })
    .await;
    dies.kill().await;
    fleet.llm.push(reply_text("done"));
    let second = worker(&fleet, &stage, Probe::default());
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let entries = seen().await;
    assert_eq!(states(&entries), with("unknown"));
    for entry in &entries {
        let call = match (entry["state"].as_str(), entry["tool"].as_str()) {
            (Some("unknown"), _) => "lost",
            (_, Some(PUT)) => "kept",
            _ => "refused",
        };
        let keys: Vec<String> = stage.keys(call).into_keys().collect();
        assert_eq!(json!([entry["idempotency_key"]]), json!(keys), "{call}");
    }
    second.drain().await;
}
