//! Forks through a real worker: shared steps are never asked again, whatever differs.

use longhaul_agent::probe::Point;
use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    DefinitionSpec, ToolEffect, ValidatorResponse,
    spec::{AgentOverrides, ModelSpec},
};
use longhaul_store::executions::control::Fork;
use longhaul_store::executions::submit::Submitted;
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use super::journal::{Holds, quick_fleet};
use super::kit::{TestTool, TestValidator, agent_with, definition, said};
use crate::support::fleet::Fleet;

/// Scripts one call of `look`, then an answer with the name of the model.
fn answer_by_model(fleet: &Fleet) {
    fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_calls([("look", json!({ "value": 1 }))]),
        _ => reply_text(&json!({ "by": request.body["model"] }).to_string()),
    });
}

async fn fork(fleet: &Fleet, origin: ExecutionId, fork: Fork) -> ExecutionId {
    let execution = fleet.store.read_origin(fleet.tenant, origin).await.unwrap().unwrap().execution;
    let forked = fleet.store.submit_fork(origin, &execution, &fork).await.unwrap();
    assert_eq!(forked, Submitted::Created(execution.id));
    execution.id
}

/// Number of the execution's last turn.
async fn last_turn(fleet: &Fleet, id: ExecutionId) -> i32 {
    sqlx::query_scalar("select max(seq) from steps where execution_id = $1 and kind = 'turn'")
        .bind(id.0)
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap()
}

async fn events(fleet: &Fleet, id: ExecutionId) -> Vec<String> {
    sqlx::query_scalar("select kind from events where execution_id = $1 order by seq")
        .bind(id.0)
        .fetch_all(&fleet.db.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn fork_with_another_model_reuses_earlier_steps() {
    let fleet = Fleet::start().await;
    answer_by_model(&fleet);
    let look = TestTool::recording("look", ToolEffect::SideEffect);
    fleet.apply(&agent_with(&["look"]), &definition("d", &["is_valid_json"])).await;
    let _worker = fleet.worker_with(|builder| builder.tool(look.clone()).unwrap());
    let origin = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(origin).await["output"]["by"], "default");
    let before = last_turn(&fleet, origin).await;
    let model = ModelSpec { name: Some("other".into()), ..ModelSpec::default() };
    let overrides = Some(AgentOverrides { model: Some(model), ..AgentOverrides::default() });
    let id = fork(&fleet, origin, Fork { before, overrides, ..Fork::default() }).await;
    // The fork has copies of its own, so the origin's rows can be deleted.
    let deleted = "delete from steps where execution_id = $1";
    sqlx::query(deleted).bind(origin.0).execute(&fleet.db.pool).await.unwrap();
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["output"]["by"]), (&json!("FINISHED"), &json!("other")));
    assert_eq!((row["turns"].as_i64(), look.count(), fleet.llm.requests().len()), (Some(1), 1, 3));
    let told = events(&fleet, id).await;
    assert!(!told.contains(&"journal_diverged".to_owned()), "{told:?}");
    assert_eq!(row["forked_from"], origin.to_string());
}

#[tokio::test]
async fn fork_keeps_new_prompt_and_input_across_resume() {
    let fleet = quick_fleet().await;
    answer_by_model(&fleet);
    let look = TestTool::recording("look", ToolEffect::SideEffect);
    // A validator of the application: the fork's turn is committed before its end.
    let pads = TestValidator::always("pads", ValidatorResponse::success());
    let spec = DefinitionSpec { prompt: Some("about {{ input.topic }}".into()), ..definition("d", &["pads"]) };
    fleet.apply(&agent_with(&["look"]), &spec).await;
    let first = fleet.worker_with(|builder| builder.tool(look.clone()).unwrap().validator(pads.clone()).unwrap());
    let origin = fleet.submit("d", json!({ "topic": "ships" })).await;
    fleet.ended(origin).await;
    let before = last_turn(&fleet, origin).await;
    first.drain().await;
    let overrides = Some(AgentOverrides { prompt: Some("you are brief".into()), ..AgentOverrides::default() });
    let input = Some(json!({ "topic": "trains" }).to_string());
    let id = fork(&fleet, origin, Fork { before, input, overrides, has_new_prompt: true }).await;
    let holds = Holds::default();
    holds.plan(id, Point::TurnRecorded, 1);
    let doomed = fleet.worker_with(|builder| {
        builder.tool(look.clone()).unwrap().validator(pads.clone()).unwrap().probe(holds.probe())
    });
    holds.all_held().await;
    doomed.kill().await;
    let _worker = fleet.worker_with(|builder| builder.tool(look.clone()).unwrap().validator(pads.clone()).unwrap());
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], row["turns"].as_i64(), look.count()), (&json!("FINISHED"), Some(1), 1));
    let requests = fleet.llm.requests();
    assert_eq!(requests.len(), 3, "the fork asked once");
    let told = said(&requests[2]);
    let roles: Vec<&str> = told.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
    assert!(told[0].1.starts_with("you are brief") && told[1].1 == "about trains", "{told:?}");
    let kinds: Value = fleet
        .json(
            "select jsonb_agg(kind order by seq) from steps s join executions e on e.id = s.execution_id \
             where e.forked_from is not null and s.seq < 4",
        )
        .await;
    assert_eq!(kinds, json!(["prompt", "turn", "call"]));
}
