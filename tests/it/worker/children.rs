//! Sub-agents: child executions carry out parts of a task while their parent is parked until all have ended.

use longhaul_agent::probe::Point;
use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    AgentSpec,
    spec::{BudgetSpec, ToolRef},
};
use longhaul_store::executions::budgets::Caps;
use longhaul_store::tenants::scope::TenantScope;
use longhaul_testkit::model::{Captured, Gate, Reply, ev_gate, ev_text, reply_calls, reply_events, reply_text};
use serde_json::{Value, json};

use super::journal::{Holds, quick_fleet};
use super::kit::{agent_with, definition};
use crate::support::fleet::{Fleet, PATIENCE, agent};
use crate::support::wait::eventually;

/// The agent `a`, which may spawn `child` as `settings` allow.
fn parent(settings: Value) -> AgentSpec {
    let tool: ToolRef = serde_json::from_value(json!({ "name": "spawn_sub_agent", "settings": settings })).unwrap();
    AgentSpec { tools: vec![tool], ..agent_with(&[]) }
}

/// Task of a child's request; `None` for a request of the parent.
fn task_of(request: &Captured) -> Option<String> {
    let text = request.messages().iter().map(Value::to_string).collect::<String>();
    let is_parent = text.contains("the whole task");
    let at = text.find("task-").filter(|_| !is_parent)?;
    Some(text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect())
}

fn spawn(tasks: usize) -> Reply {
    let tasks: Vec<Value> = (0..tasks).map(|n| json!({ "agent": "child", "prompt": format!("task-{n}") })).collect();
    reply_calls([("spawn_sub_agent", json!({ "tasks": tasks, "strategy": "collect" }))])
}

/// Scripts a parent that spawns `tasks` children and then repeats their results; children answer with their task.
fn play(fleet: &Fleet, tasks: usize) {
    fleet.llm.answer_with(move |request| match (task_of(request), request.replies()) {
        (Some(task), _) => reply_text(&format!("did {task}")),
        (None, 0) => spawn(tasks),
        (None, _) => reply_text(&request.last_text()),
    });
}

async fn prepare(fleet: &Fleet, settings: Value) {
    fleet.store.put_shared_agent(&agent("child")).await.unwrap();
    fleet.apply(&parent(settings), &definition("d", &["is_valid_json"])).await;
}

async fn submit(fleet: &Fleet, budget: Option<BudgetSpec>) -> ExecutionId {
    let mut new = fleet.new_execution("d", json!({ "task": "the whole task" })).await;
    new.budget = budget;
    fleet.submit_new(new).await
}

async fn count(fleet: &Fleet, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&fleet.db.pool).await.unwrap()
}

const OPEN: &str = "select count(*) from executions where finished_at is null";
const CHILDREN: &str = "select count(*) from executions where parent_id is not null";

#[tokio::test]
async fn sub_agents_run_concurrently_with_results_in_order() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let gate = Gate::new();
    let held = gate.clone();
    fleet.llm.answer_with(move |request| match (task_of(request), request.replies()) {
        (Some(task), _) => reply_events([ev_gate(&held), ev_text(&format!("did {task}"))]),
        (None, 0) => spawn(3),
        (None, _) => reply_text(&request.last_text()),
    });
    let _worker = fleet.worker();
    let id = submit(&fleet, None).await;
    fleet.until(id, "it waits for its children", |row| row["wait_reason"] == "children").await;
    eventually("all three are asked at once", PATIENCE, || async {
        let asked = fleet.llm.in_flight();
        if asked == 3 { Ok(()) } else { Err(asked) }
    })
    .await;
    gate.open();
    let row = fleet.ended(id).await;
    assert_eq!(row["status"], "FINISHED");
    let results = row["output"]["results"].as_array().unwrap();
    let said: Vec<Value> =
        results.iter().map(|result| json!([result["status"], result["output"]["response"]])).collect();
    let expected = ["did task-0", "did task-1", "did task-2"].map(|text| json!(["completed", text]));
    assert_eq!(said, expected);
    assert_eq!(fleet.llm.requests().len(), 5, "the parent asked twice");
}

#[tokio::test]
async fn fifty_sub_agents_share_one_budget_until_raised() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    play(&fleet, 50);
    let _worker = fleet.worker();
    // One of the calls is the parent's own.
    let budget = BudgetSpec { max_model_calls: Some(11), ..BudgetSpec::default() };
    let id = submit(&fleet, Some(budget)).await;
    eventually("forty wait for the budget and the others are over", PATIENCE, || async {
        let waiting = count(&fleet, "select count(*) from parked where wait_reason = 'budget'").await;
        let over = count(&fleet, "select count(*) from executions where status = 'FINISHED'").await;
        if (waiting, over) == (40, 10) { Ok(()) } else { Err(format!("{waiting} wait, {over} are over")) }
    })
    .await;
    assert_eq!(fleet.llm.requests().len(), 11);
    let caps = Caps { max_calls: Some(100), ..Caps::default() };
    fleet.store.raise_budget(id, caps).await.unwrap();
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], row["output"]["results"].as_array().unwrap().len()), (&json!("FINISHED"), 50));
    assert_eq!(fleet.llm.requests().len(), 52);
    let ledger = fleet.store.read_budget(&TenantScope::from(fleet.tenant), id).await.unwrap().unwrap();
    assert_eq!((ledger.spent.calls, ledger.reserved.calls, ledger.waiting), (52, 0, 0));
}

#[tokio::test]
async fn cancel_aborts_sub_agents_during_their_calls() {
    let fleet = quick_fleet().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let gate = Gate::new();
    let held = gate.clone();
    fleet.llm.answer_with(move |request| match (task_of(request), request.replies()) {
        (Some(_), _) => reply_events([ev_gate(&held), ev_text("never heard")]),
        (None, _) => spawn(8),
    });
    let _worker = fleet.worker();
    let id = submit(&fleet, None).await;
    eventually("all eight are asked", PATIENCE, || async {
        let asked = fleet.llm.in_flight();
        if asked == 8 { Ok(()) } else { Err(asked) }
    })
    .await;
    fleet.store.cancel_execution(fleet.tenant, id).await.unwrap();
    eventually("nothing runs", PATIENCE, || async {
        let left = (count(&fleet, OPEN).await, fleet.llm.in_flight());
        if left == (0, 0) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let others = "select count(*) from executions where failure_code is distinct from 'cancelled'";
    assert_eq!((count(&fleet, others).await, fleet.llm.requests().len()), (0, 9));
}

#[tokio::test]
async fn parent_killed_around_spawn_starts_each_child_once() {
    let fleet = quick_fleet().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    play(&fleet, 3);
    let holds = Holds::default();
    let mut ids = Vec::new();
    for point in [Point::TurnRecorded, Point::BeforeConclusion, Point::Concluded] {
        let new = fleet.new_execution("d", json!({ "task": "the whole task" })).await;
        holds.plan(new.id, point, 1);
        ids.push(fleet.submit_new(new).await);
    }
    let doomed = fleet.worker_with(|builder| builder.probe(holds.probe()));
    holds.all_held().await;
    doomed.kill().await;
    let _worker = fleet.worker();
    for id in ids {
        let row = fleet.ended(id).await;
        assert_eq!((&row["status"], row["output"]["results"].as_array().unwrap().len()), (&json!("FINISHED"), 3));
    }
    assert_eq!(count(&fleet, CHILDREN).await, 9);
}

#[tokio::test]
async fn refused_spawn_is_an_error_to_the_model() {
    let fleet = Fleet::start().await;
    let _worker = fleet.worker();
    for (settings, says) in [
        (json!({ "agents": ["other"] }), "is not one of"),
        (json!({}), "the agent `child` may not be started by this one"),
        (json!({ "agents": ["child"], "max_depth": 0 }), "there is no tool named `spawn_sub_agent`"),
        (json!({ "agents": ["child"], "max_children": 1 }), "may start 1 children"),
        (json!({ "agents": ["child"], "max_childs": 1 }), "settings cannot be read"),
    ] {
        prepare(&fleet, settings).await;
        fleet.llm.answer_with(|request| match request.replies() {
            0 => spawn(2),
            _ => reply_text(&json!({ "told": request.last_text() }).to_string()),
        });
        let row = fleet.ended(submit(&fleet, None).await).await;
        assert!(row["output"]["told"].as_str().unwrap().contains(says), "{says}: {row}");
    }
    assert_eq!(count(&fleet, CHILDREN).await, 0);
}

async fn deny_child(fleet: &Fleet, org: &str) {
    let rules = json!({ "policy_rules": [
        { "id": "no-child", "effect": "deny", "scope": format!("org:{org}"), "resource": "child", "action": "execute" },
    ] });
    fleet.store.put_platform(&serde_json::from_value(rules).unwrap()).await.unwrap();
}

#[tokio::test]
async fn denied_agents_are_not_started_as_sub_agents() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let org: String = sqlx::query_scalar("select org_id from tenants where id = $1")
        .bind(fleet.tenant.0)
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    deny_child(&fleet, &org).await;
    play(&fleet, 1);
    let _worker = fleet.worker();
    let id = submit(&fleet, None).await;
    let output = fleet.ended(id).await["output"].to_string();
    assert!(output.contains("policy does not let you start the agent"), "{output}");
    assert_eq!(count(&fleet, CHILDREN).await, 0);
}
