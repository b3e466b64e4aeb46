//! Budgets around real model calls: no call is made without a reservation, and every call made is paid for.

use std::collections::BTreeMap;

use longhaul_agent::probe::Point;
use longhaul_config::PriceConfig;
use longhaul_domain::ExecutionId;
use longhaul_sdk::spec::{BudgetSpec, OnExhausted};
use longhaul_sdk::{ToolEffect, Usd};
use longhaul_store::executions::budgets::{Caps, Ledger};
use longhaul_store::tenants::scope::TenantScope;
use longhaul_testkit::model::{reply_calls, reply_status, reply_text};
use longhaul_worker::WorkerBuilder;
use serde_json::{Value, json};

use super::journal::{Holds, case_of, quick_fleet};
use super::kit::{TestTool, agent_with, definition};
use crate::support::fleet::{Fleet, PATIENCE, agent};
use crate::support::wait::eventually;

fn calls(max: u32) -> BudgetSpec {
    BudgetSpec { max_model_calls: Some(max), ..BudgetSpec::default() }
}

async fn submit(fleet: &Fleet, budget: BudgetSpec) -> ExecutionId {
    let mut new = fleet.new_execution("d", json!({ "case": "a" })).await;
    new.budget = Some(budget);
    fleet.submit_new(new).await
}

async fn ledger(fleet: &Fleet, id: ExecutionId) -> Ledger {
    fleet.store.read_budget(&TenantScope::from(fleet.tenant), id).await.unwrap().unwrap()
}

/// Builder of a worker that knows the prices of the endpoint's models: one dollar per million tokens sent, four per
/// million received.
fn priced(fleet: &Fleet) -> WorkerBuilder {
    let mut config = fleet.config();
    let usd = |text: &str| text.parse().unwrap();
    let price = PriceConfig {
        model: "*".into(),
        input: usd("1"),
        output: usd("4"),
        cached_input: None,
        cache_write_input: None,
    };
    config.llm.providers.get_mut("custom").unwrap().prices = vec![price];
    WorkerBuilder::new(config)
}

/// Scripts a first turn that calls `look` and a second that answers. Returns the tool.
fn look_first(fleet: &Fleet) -> TestTool {
    fleet.llm.answer_with(|request| {
        let reply = match request.replies() {
            0 => reply_calls([("look", json!({ "value": 1 }))]),
            _ => reply_text(r#"{"done": true}"#),
        };
        reply.usage(1_000, 100)
    });
    TestTool::recording("look", ToolEffect::ReadOnly)
}

#[tokio::test]
async fn exhausted_budget_parks_run_until_raised() {
    let fleet = Fleet::start().await;
    let look = look_first(&fleet);
    fleet.apply(&agent_with(&["look"]), &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker_with(|_| priced(&fleet).tool(look).unwrap());
    let id = submit(&fleet, calls(1)).await;
    let row = fleet.until(id, "it waits", |row| row["wait_reason"] == "budget").await;
    assert_eq!((&row["turns"], fleet.llm.requests().len()), (&json!(1), 1));
    let before = ledger(&fleet, id).await;
    assert_eq!((before.spent.calls, before.reserved.calls, before.waiting), (1, 0, 1));
    assert_eq!(before.spent.cost, Usd::from_nanos(1_400_000), "a thousand at one, a hundred at four, for a million");
    fleet.store.raise_budget(id, Caps { max_calls: Some(2), ..Caps::default() }).await.unwrap();
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], fleet.llm.requests().len()), (&json!("FINISHED"), 2));
    assert_eq!(row["cost_usd"].as_f64(), Some(0.0028));
    let after = ledger(&fleet, id).await;
    assert_eq!((after.spent.calls, after.spent.tokens, after.reserved.calls), (2, 2_200, 0));
}

#[tokio::test]
async fn exhausted_fail_budget_ends_run_with_ledger() {
    let fleet = Fleet::start().await;
    let look = look_first(&fleet);
    fleet.apply(&agent_with(&["look"]), &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker_with(|_| priced(&fleet).tool(look).unwrap());
    let id = submit(&fleet, BudgetSpec { on_exhausted: OnExhausted::Fail, ..calls(1) }).await;
    let row = fleet.ended(id).await;
    assert_eq!(row["failure_code"], "budget_exhausted");
    let detail = fleet.json("select failure_detail::jsonb from execution_payloads").await;
    let spent = json!({ "cost_usd": 0.0014, "tokens": 1_100, "model_calls": 1 });
    assert_eq!((&detail["max"]["model_calls"], &detail["spent"]), (&json!(1), &spent));
}

#[tokio::test]
async fn money_budget_without_a_price_fails_the_run() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker();
    let money = BudgetSpec { max_cost_usd: Some("1".parse().unwrap()), ..BudgetSpec::default() };
    let refused = submit(&fleet, money).await;
    assert_eq!(fleet.ended(refused).await["failure_code"], "price_unknown");
    assert!(fleet.llm.requests().is_empty());
    fleet.llm.answer_with(|_| reply_text("{}").usage(10, 1));
    let counted = submit(&fleet, calls(1)).await;
    let row = fleet.ended(counted).await;
    assert_eq!((&row["status"], &row["cost_usd"]), (&json!("FINISHED"), &Value::Null));
    assert_eq!(ledger(&fleet, counted).await.uncosted_calls, 1);
}

#[tokio::test]
async fn failed_call_counts_and_costs_nothing() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_status(500, "broken"));
    fleet.llm.answer_with(|_| reply_text("{}").usage(1_000, 100));
    let _worker = fleet.worker_with(|_| priced(&fleet));
    let id = submit(&fleet, calls(5)).await;
    fleet.until(id, "it backs off", |row| row["wait_reason"] == "retry_backoff").await;
    sqlx::query("update clock set shift = shift + interval '11 seconds'").execute(&fleet.db.pool).await.unwrap();
    fleet.ended(id).await;
    let ledger = ledger(&fleet, id).await;
    assert_eq!((ledger.spent.calls, ledger.spent.cost, ledger.reserved.calls), (2, Usd::from_nanos(1_400_000), 0));
}

/// Points and visits at which a run dies: around the reservation, the call and the settlement of a turn, and at the
/// end of the run.
const DEATHS: [(Point, usize); 6] = [
    (Point::BeforeTurn, 1),
    (Point::BeforeTurn, 2),
    (Point::TurnAnswered, 1),
    (Point::TurnAnswered, 2),
    // Of a turn with a call: the last turn is committed with the end.
    (Point::TurnRecorded, 1),
    (Point::BeforeConclusion, 1),
];

#[tokio::test(flavor = "multi_thread")]
async fn killed_runs_pay_for_every_call_made() {
    const WORKERS: usize = 10;
    const AT_ONCE: usize = 100;
    let mut fleet = quick_fleet().await;
    fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "60");
    fleet.llm.answer_with(|request| {
        let case = case_of(request);
        // Only runs that die around a second turn, or between two, have one.
        let looks = (case.contains(" 2,") || case.starts_with("TurnRecorded")) && request.replies() == 0;
        let reply = if looks { reply_calls([("look", json!({ "value": case }))]) } else { reply_text("{}") };
        reply.usage(1_000, 100)
    });
    let look = TestTool::recording("look", ToolEffect::ReadOnly);
    fleet.apply(&agent_with(&["look"]), &definition("d", &["is_valid_json"])).await;
    let (holds, mut ids) = (Holds::default(), Vec::new());
    for worker in 0..WORKERS {
        for run in 0..AT_ONCE {
            let (point, visit) = DEATHS[run % DEATHS.len()];
            let case = format!("{point:?} {visit}, worker {worker}, run {run}");
            let mut new = fleet.new_execution("d", json!({ "case": case })).await;
            new.budget = Some(BudgetSpec { max_cost_usd: Some("1".parse().unwrap()), ..calls(50) });
            holds.plan(new.id, point, visit);
            ids.push((case, fleet.submit_new(new).await));
        }
        // The worker takes over the runs that the last one left, and dies once all new runs are at their points. The
        // older runs die with it, wherever they are.
        let doomed = fleet.worker_with(|_| priced(&fleet).tool(look.clone()).unwrap().probe(holds.probe()));
        holds.all_held().await;
        doomed.kill().await;
        fleet.bury_workers().await;
        // Runs that died with several workers must not become suspects here.
        sqlx::query("update executions set crash_count = 0, lane = 0 where crash_count > 0")
            .execute(&fleet.db.pool)
            .await
            .unwrap();
    }
    let _worker = fleet.worker_with(|_| priced(&fleet).tool(look).unwrap());
    let mut over = Vec::new();
    for (case, id) in ids {
        assert_eq!(fleet.ended(id).await["status"], "FINISHED", "{case}");
        over.push((case, ledger(&fleet, id).await));
    }
    let mut made: BTreeMap<String, i64> = BTreeMap::new();
    fleet.llm.requests().iter().for_each(|request| *made.entry(case_of(request)).or_default() += 1);
    for (case, ledger) in over {
        let made = made[&case];
        assert!(ledger.spent.calls >= made, "{case}: {made} made, {ledger:?}");
        assert!(ledger.spent.cost.nanos() >= made * 1_400_000, "{case}: {made} made, {ledger:?}");
        assert_eq!(ledger.reserved.calls, 0, "{case}: {ledger:?}");
    }
    eventually("nothing is reserved", PATIENCE, || async {
        let open = fleet.json("select to_jsonb(count(*)) from reservations where state <> 'settled'").await;
        if open == json!(0) { Ok(()) } else { Err(open) }
    })
    .await;
}
