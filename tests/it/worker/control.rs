//! External control of executions: cancels, deadlines, priorities, queues, schedules, and workers that come and go.

use std::time::{Duration, Instant};

use futures::FutureExt;
use longhaul_agent::probe::{Point, Probe};
use longhaul_domain::ExecutionId;
use longhaul_sdk::{DefinitionSpec, ToolEffect, ValidatorResponse, spec::McpServerSpec};
use longhaul_store::executions::control::Cancelled;
use longhaul_testkit::mcp::HttpMcp;
use longhaul_testkit::model::{
    Gate, ev_gate, ev_text, reply_calls, reply_events, reply_hang_up, reply_silent, reply_status, reply_text,
};
use serde_json::{Value, json};

use super::kit::{TestTool, TestValidator, agent_with, definition, said};
use crate::support::{
    fleet::{Fleet, PATIENCE, agent},
    wait::eventually,
};

async fn in_flight(fleet: &Fleet, count: usize) {
    eventually(&format!("{count} requests are in flight"), PATIENCE, || async {
        let now = fleet.llm.in_flight();
        if now == count { Ok(()) } else { Err(now) }
    })
    .await;
}

fn ended_as(row: &Value) -> Value {
    json!([row["status"], row["failure_class"], row["failure_code"]])
}

fn quicken(fleet: &mut Fleet) {
    for (name, seconds) in [("LEASE", "2"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
        fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
    }
}

#[tokio::test]
async fn cancel_aborts_model_call_within_five_seconds() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let worker = fleet.worker();
    fleet.llm.push(reply_silent());
    let id = fleet.submit("d", json!({})).await;
    in_flight(&fleet, 1).await;
    let asked = Instant::now();
    assert_eq!(fleet.store.cancel_execution(fleet.tenant, id).await.unwrap(), Cancelled::Requested);
    let row = fleet.ended(id).await;
    let took = asked.elapsed();
    assert_eq!(ended_as(&row), json!(["FAILED", "permanent", "cancelled"]));
    assert!(took < Duration::from_secs(5), "the cancel took {took:?}");
    in_flight(&fleet, 0).await;
    assert_eq!(fleet.llm.requests().len(), 1);
    worker.drain().await;
}

#[tokio::test]
async fn cancel_reaches_tool_server_during_its_call() {
    let fleet = Fleet::start().await;
    let mcp = HttpMcp::start().await.unwrap();
    let mut agent = agent("a");
    let server = McpServerSpec {
        command: Vec::new(),
        env: Default::default(),
        url: Some(mcp.url()),
        headers: Default::default(),
        allow: vec!["gated".into()],
        trusted: false,
        effects: Default::default(),
        idempotency_arguments: Default::default(),
        calls: Default::default(),
        timeout_seconds: None,
    };
    agent.mcp_servers.insert("door".into(), server);
    fleet.apply(&agent, &definition("d", &[])).await;
    let worker = fleet.worker();
    fleet.llm.push(reply_calls([("mcp__door__gated", json!({}))]));
    let id = fleet.submit("d", json!({})).await;
    let counted = |what: &'static str, of: fn(&HttpMcp) -> usize| {
        let mcp = &mcp;
        async move {
            eventually(what, PATIENCE, || async { if of(mcp) == 1 { Ok(()) } else { Err(of(mcp)) } }).await;
        }
    };
    use std::sync::atomic::Ordering::SeqCst;
    counted("the call waits", |mcp| mcp.observed.waiting.load(SeqCst)).await;
    fleet.store.cancel_execution(fleet.tenant, id).await.unwrap();
    assert_eq!(fleet.ended(id).await["failure_code"], "cancelled");
    counted("the server is told", |mcp| mcp.observed.cancelled.load(SeqCst)).await;
    worker.drain().await;
}

#[tokio::test]
async fn cancel_ends_unheld_execution_at_once() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let pending = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.store.cancel_execution(fleet.tenant, pending).await.unwrap(), Cancelled::Ended);
    let worker = fleet.worker();
    fleet.llm.push(reply_hang_up());
    let parked = fleet.submit("d", json!({})).await;
    fleet.until(parked, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
    assert_eq!(fleet.store.cancel_execution(fleet.tenant, parked).await.unwrap(), Cancelled::Ended);
    for id in [pending, parked] {
        assert_eq!(ended_as(&fleet.row(id).await), json!(["FAILED", "permanent", "cancelled"]));
    }
    // The end of its backoff no longer wakes it.
    fleet.advance(Duration::from_secs(60)).await;
    assert!(fleet.store.wake_due(10).await.unwrap().is_empty());
    assert_eq!(fleet.llm.requests().len(), 1);
    worker.drain().await;
}

#[tokio::test]
async fn run_longer_than_its_active_timeout_ends() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &DefinitionSpec { active_timeout_seconds: 1, ..definition("d", &[]) }).await;
    let worker = fleet.worker();
    fleet.llm.push(reply_silent());
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.ended(id).await;
    assert_eq!(ended_as(&row), json!(["FAILED", "permanent", "deadline_exceeded"]));
    assert!(row["active_seconds"].as_f64().unwrap() < 5.0, "{row}");
    in_flight(&fleet, 0).await;
    worker.drain().await;
}

#[tokio::test]
async fn write_overtaken_by_an_interrupt_is_still_recorded() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &DefinitionSpec { active_timeout_seconds: 2, ..definition("d", &["pads"]) }).await;
    // A validator of the application: the turn is committed before its verdict.
    let pads = TestValidator::always("pads", ValidatorResponse::success());
    let worker = fleet.worker_with(|builder| builder.validator(pads).unwrap());
    let gate = Gate::new();
    fleet.llm.push(reply_events([ev_gate(&gate), ev_text("said")]));
    let id = fleet.submit("d", json!({})).await;
    gate.reached().await;
    // The lock delays the turn's commit until the active time is over, so the attempt ends during the commit.
    let mut foreign = fleet.db.pool.begin().await.unwrap();
    sqlx::query("select from executions where id = $1 for update").bind(id.0).execute(&mut *foreign).await.unwrap();
    gate.open();
    eventually("the time is over", PATIENCE, || async {
        let left = "select extract(epoch from active_until + interval '1 second' - longhaul_now())::float8 \
                    from executions where id = $1";
        let left: f64 = sqlx::query_scalar(left).bind(id.0).fetch_one(&fleet.db.pool).await.unwrap();
        if left < 0.0 { Ok(()) } else { Err(left) }
    })
    .await;
    foreign.rollback().await.unwrap();
    let row = fleet.ended(id).await;
    assert_eq!(ended_as(&row), json!(["FAILED", "permanent", "deadline_exceeded"]));
    assert_eq!(fleet.steps(id).await.last().unwrap(), &("turn".to_owned(), "live".to_owned()));
    assert_eq!(row["attempts"], 1, "{row}");
    worker.drain().await;
}

#[tokio::test]
async fn new_serve_key_is_served_without_polling_delay() {
    const TOOLS: [&str; 4] = ["one", "two", "three", "four"];
    let fleet = Fleet::start().await;
    let worker = fleet.worker_with(|builder| {
        TOOLS
            .into_iter()
            .fold(builder, |builder, name| builder.tool(TestTool::recording(name, ToolEffect::ReadOnly)).unwrap())
    });
    let started = Instant::now();
    for tool in TOOLS {
        fleet.apply(&agent_with(&[tool]), &definition("d", &[])).await;
        fleet.llm.push(reply_text("7"));
        let id = fleet.submit("d", json!({})).await;
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    }
    // With polling alone, each serve key would take another five seconds.
    assert!(started.elapsed() < Duration::from_secs(14), "{:?}", started.elapsed());
    worker.drain().await;
}

#[tokio::test]
async fn deadline_during_a_wait_ends_the_execution() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let worker = fleet.worker();
    fleet.llm.push(reply_status(408, "slow down").header("retry-after", "600"));
    let mut new = fleet.new_execution("d", json!({})).await;
    new.deadline = Duration::from_secs(300);
    let id = fleet.submit_new(new).await;
    fleet.until(id, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
    fleet.advance(Duration::from_secs(301)).await;
    let row = fleet.ended(id).await;
    assert_eq!(ended_as(&row), json!(["FAILED", "permanent", "deadline_exceeded"]));
    assert_eq!(fleet.llm.requests().len(), 1);
    worker.drain().await;
}

/// Holds `poison` at its first turn, where the test kills the worker, and the others too if `holds_others`.
fn deadly(poison: ExecutionId, holds_others: bool, standing: tokio::sync::mpsc::UnboundedSender<ExecutionId>) -> Probe {
    Probe::armed(move |point, id| {
        if point == Point::BeforeTurn && (id == poison || holds_others) {
            let _ = standing.send(id);
            return std::future::pending().boxed();
        }
        std::future::ready(()).boxed()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn third_worker_death_quarantines_only_the_poison() {
    let mut fleet = Fleet::start().await;
    quicken(&mut fleet);
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let poison = fleet.submit("d", json!({"poison": true})).await;
    let mut others = Vec::new();
    for _ in 0..9 {
        others.push(fleet.submit("d", json!({})).await);
    }
    // At two deaths the worker holds all executions, so all become suspects; at the third it holds only the poison.
    for (death, holds_others) in [(1, true), (2, true), (3, false)] {
        let (standing, mut stand) = tokio::sync::mpsc::unbounded_channel();
        let worker = fleet.worker_with(|builder| builder.probe(deadly(poison, holds_others, standing)));
        let expected = if holds_others { 10 } else { 1 };
        for _ in 0..expected {
            tokio::time::timeout(PATIENCE, stand.recv()).await.expect("all reach their first turn").unwrap();
        }
        if !holds_others {
            for &id in &others {
                assert_eq!(fleet.ended(id).await["status"], "FINISHED", "after death {death}");
            }
        }
        worker.kill().await;
    }
    let last = fleet.worker();
    let row = fleet.ended(poison).await;
    assert_eq!(ended_as(&row), json!(["FAILED", "permanent", "crash_loop"]));
    assert_eq!((&row["attempts"], &row["retries"]), (&json!(3), &json!(0)));
    last.drain().await;
}

#[tokio::test]
async fn highest_priority_runs_first_then_the_oldest() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "1");
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let mut ids = Vec::new();
    for (name, priority) in [("low", 1), ("older", 5), ("newer", 5), ("high", 9)] {
        let mut new = fleet.new_execution("d", json!({ "name": name })).await;
        new.priority = priority;
        ids.push(fleet.submit_new(new).await);
    }
    let worker = fleet.worker();
    for id in ids {
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    }
    let order: Vec<String> = fleet.llm.requests().iter().map(|request| said(request)[1].1.clone()).collect();
    let expected = ["high", "older", "newer", "low"].map(|name| json!({ "name": name }).to_string());
    assert_eq!(order, expected);
    worker.drain().await;
}

#[tokio::test]
async fn worker_claims_only_from_its_queues() {
    let mut fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let mut ids = Vec::new();
    for queue in ["a", "b"] {
        let mut new = fleet.new_execution("d", json!({ "queue": queue })).await;
        new.queue = queue.into();
        ids.push(fleet.submit_new(new).await);
    }
    fleet.set("LONGHAUL__WORKER__QUEUES", "b");
    let of_b = fleet.worker();
    assert_eq!(fleet.ended(ids[1]).await["status"], "FINISHED");
    let row = fleet.row(ids[0]).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("PENDING"), &json!(0)));
    fleet.set("LONGHAUL__WORKER__QUEUES", "c,a");
    let of_a = fleet.worker();
    assert_eq!(fleet.ended(ids[0]).await["status"], "FINISHED");
    of_a.drain().await;
    of_b.drain().await;
}

#[tokio::test]
async fn scheduled_execution_starts_at_its_time() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let worker = fleet.worker();
    let mut new = fleet.new_execution("d", json!({})).await;
    let at =
        sqlx::query_scalar("select longhaul_now() + interval '60 seconds'").fetch_one(&fleet.db.pool).await.unwrap();
    new.run_at = Some(at);
    let later = fleet.submit_new(new).await;
    // An execution submitted later finishes first.
    let now = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(now).await["status"], "FINISHED");
    let row = fleet.row(later).await;
    assert_eq!((&row["status"], &row["wait_reason"]), (&json!("PENDING"), &json!("scheduled")));
    fleet.advance(Duration::from_secs(61)).await;
    assert_eq!(fleet.ended(later).await["status"], "FINISHED");
    worker.drain().await;
}

#[tokio::test]
async fn unserved_execution_waits_for_a_capable_worker() {
    let mut fleet = Fleet::start().await;
    quicken(&mut fleet);
    fleet.apply(&agent_with(&["rare"]), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let stock = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    fleet.advance(Duration::from_secs(11)).await;
    let row = fleet.until(id, "it waits for a worker", |row| row["wait_reason"] == "no_worker").await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("PENDING"), &json!(0)));
    let tool = TestTool::recording("rare", ToolEffect::ReadOnly);
    let able = fleet.worker_with(|builder| builder.tool(tool).unwrap());
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("FINISHED"), &json!(1)));
    able.drain().await;
    stock.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_declared_dead_restarts_under_new_identity() {
    let mut fleet = Fleet::start().await;
    quicken(&mut fleet);
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let gate = Gate::new();
    fleet.llm.push(reply_events([ev_gate(&gate), ev_text("too late")]));
    fleet.llm.push(reply_text("in time"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    in_flight(&fleet, 1).await;
    let before = fleet.row(id).await["worker_id"].clone();
    sqlx::query("update workers set dead_at = clock_timestamp()").execute(&fleet.db.pool).await.unwrap();
    let row = fleet.ended(id).await;
    // The late reply to the first attempt is ignored, and its request carried the same key.
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"response": "in time"})));
    assert_eq!((&row["attempts"], &row["retries"]), (&json!(2), &json!(0)));
    assert_eq!(fleet.llm.calls().into_values().collect::<Vec<_>>(), [2]);
    let workers = fleet.json("select jsonb_agg(distinct worker_id) from attempts").await;
    assert!(workers.as_array().unwrap().len() == 2 && workers.as_array().unwrap().contains(&before), "{workers}");
    gate.open();
    worker.drain().await;
}

#[tokio::test]
async fn tool_panic_is_an_error_for_the_model() {
    let fleet = Fleet::start().await;
    let tool = TestTool::new("breaks", ToolEffect::ReadOnly, |_, _, _| panic!("a bug in the tool"));
    fleet.apply(&agent_with(&["breaks"]), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool).unwrap());
    fleet.llm.push(reply_calls([("breaks", json!({}))]));
    fleet.llm.push(reply_text("{}"));
    let id = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let told = fleet.llm.requests()[1].last_text();
    assert!(told.contains("failed unexpectedly") && !told.contains("a bug"), "{told}");
    worker.drain().await;
}
