//! Commits of one execution, counted as the transactions that wrote its history rows. The database's own
//! statistics would include heartbeats and the sweep.

use longhaul_agent::probe::{Point, Probe};
use longhaul_domain::ExecutionId;
use longhaul_sdk::{ToolEffect, ValidatorResponse, spec::BudgetSpec};
use longhaul_store::tenants::scope::TenantScope;
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use super::{
    journal::{Holds, quick_fleet},
    kit::{TestTool, TestValidator, agent_with, definition},
};
use crate::support::fleet::{Fleet, agent};

async fn commits(fleet: &Fleet, id: ExecutionId) -> i64 {
    sqlx::query_scalar(
        "select count(*) from (
             select xmin::text from events where execution_id = $1
             union select xmin::text from steps where execution_id = $1
             union select xmin::text from attempts where execution_id = $1
         ) as written",
    )
    .bind(id.0)
    .fetch_one(&fleet.db.pool)
    .await
    .unwrap()
}

async fn finished(fleet: &Fleet, definition: &str) -> ExecutionId {
    let id = fleet.submit(definition, json!({})).await;
    let row = fleet.ended(id).await;
    assert_eq!(row["status"], "FINISHED", "{row}");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_turn_costs_three_commits() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let worker = fleet.worker_with(|builder| builder);
    let id = finished(&fleet, "d").await;
    assert_eq!(commits(&fleet, id).await, 3, "submit, claim, end");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_answers_are_committed_before_the_next_turn() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet.llm.answer_with(|request| reply_text(if request.replies() == 0 { "prose" } else { "{}" }));
    let worker = fleet.worker_with(|builder| builder);
    let id = finished(&fleet, "d").await;
    assert_eq!(commits(&fleet, id).await, 4, "submit, claim, refused turn, end");
    worker.drain().await;
}

/// Application code may have side effects: the turn it acts on is committed first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_are_committed_before_a_validator_of_the_application() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["pads"])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let pads = TestValidator::always("pads", ValidatorResponse::success());
    let worker = fleet.worker_with(|builder| builder.validator(pads).unwrap());
    let id = finished(&fleet, "d").await;
    assert_eq!(commits(&fleet, id).await, 4, "submit, claim, turn, end");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_round_costs_two_commits() {
    let fleet = Fleet::start().await;
    let mut agent = agent_with(&["look"]);
    agent.model.stream = false;
    fleet.apply(&agent, &definition("d", &["is_valid_json"])).await;
    fleet.llm.answer_with(
        |request| {
            if request.replies() == 0 { reply_calls([("look", json!({}))]) } else { reply_text("{}") }
        },
    );
    let look = TestTool::recording("look", ToolEffect::ReadOnly);
    let worker = fleet.worker_with(|builder| builder.tool(look).unwrap());
    let id = finished(&fleet, "d").await;
    assert_eq!(commits(&fleet, id).await, 5, "submit, claim, turn, result, end");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_turn_is_settled_with_the_end() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet.llm.answer_with(|_| reply_text("{}").usage(1_000, 100));
    let worker = fleet.worker_with(|builder| builder);
    let mut new = fleet.new_execution("d", json!({})).await;
    new.budget = Some(BudgetSpec { max_model_calls: Some(3), ..BudgetSpec::default() });
    let id = fleet.submit_new(new).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(commits(&fleet, id).await, 3, "submit, claim, end; the reservation is no history");
    let ledger = fleet.store.read_budget(&TenantScope::from(fleet.tenant), id).await.unwrap().unwrap();
    assert_eq!((ledger.spent.calls, ledger.reserved.calls, ledger.spent.tokens), (1, 0, 1_100));
    worker.drain().await;
}

/// Number of model requests after a worker died at `point` and another one took over.
async fn asked_after_death_at(point: Point) -> usize {
    let fleet = quick_fleet().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let holds = Holds::default();
    let id = fleet.submit("d", json!({})).await;
    holds.plan(id, point, 1);
    let first = fleet.worker_with(|builder| builder.probe(holds.probe()));
    holds.all_held().await;
    first.kill().await;
    let second = fleet.worker_with(|builder| builder.probe(Probe::default()));
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({})), "{row}");
    let ends: i64 = sqlx::query_scalar("select count(*) from events where execution_id = $1 and kind = 'finished'")
        .bind(id.0)
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    assert_eq!(ends, 1);
    second.drain().await;
    fleet.llm.requests().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn death_before_the_end_repeats_only_the_last_turn() {
    assert_eq!(asked_after_death_at(Point::BeforeConclusion).await, 2, "nothing of the turn was recorded");
    assert_eq!(asked_after_death_at(Point::Concluded).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_output_fails_the_execution_and_keeps_its_turn() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    sqlx::raw_sql(
        "create function refuse_output() returns trigger language plpgsql as
         $$ begin raise exception 'refused' using errcode = '22023'; end $$;
         create trigger refuse_output before update on execution_payloads for each row when (new.output is not null)
         execute function refuse_output()",
    )
    .execute(&fleet.db.pool)
    .await
    .unwrap();
    let worker = fleet.worker_with(|builder| builder);
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("internal_error")), "{row}");
    let turns: Value = fleet.json("select jsonb_agg(state) from steps where kind = 'turn'").await;
    assert_eq!((turns, &row["turns"]), (json!(["live"]), &json!(1)), "{row}");
    worker.drain().await;
}
