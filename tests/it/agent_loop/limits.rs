//! Limits of one process on its parallel calls over all its executions: of one tool, and of all tools.

use longhaul_domain::ExecutionId;
use longhaul_sdk::AgentSpec;
use longhaul_store::executions::control::Cancelled;
use longhaul_testkit::model::{Captured, Reply, reply_events, reply_text};
use serde_json::{Value, json};

use super::kit::{ACT, Stage, WORK, any_answer, call_of, referring, work};
use crate::support::{
    fleet::{Fleet, FleetWorker, PATIENCE},
    wait::eventually,
};

fn case_of(request: &Captured) -> String {
    let input: Value = serde_json::from_str(request.messages()[1]["content"].as_str().unwrap()).unwrap();
    input["case"].as_str().unwrap().to_owned()
}

async fn start(fleet: &Fleet, stage: &Stage, calls: impl Fn(&str) -> Reply + Send + Sync + 'static) -> FleetWorker {
    let agent = AgentSpec { references: false, ..referring() };
    fleet.apply(&agent, &any_answer()).await;
    fleet.llm.answer_with(move |request| match request.replies() {
        0 => calls(&case_of(request)),
        _ => reply_text("done"),
    });
    fleet.worker_with(|builder| stage.tools(builder))
}

async fn submit(fleet: &Fleet, case: &str) -> ExecutionId {
    fleet.submit("d", json!({ "case": case })).await
}

/// Waits until a call of this tool is recorded in this state.
async fn recorded(fleet: &Fleet, id: ExecutionId, tool: &str, state: &str) {
    eventually(&format!("a call of {tool} is {state}"), PATIENCE, async || {
        let steps: Vec<(String, String)> =
            sqlx::query_as("select name, state from steps where execution_id = $1 and kind = 'call'")
                .bind(id.0)
                .fetch_all(&fleet.db.pool)
                .await
                .unwrap();
        if steps.contains(&(tool.to_owned(), state.to_owned())) { Ok(()) } else { Err(format!("{steps:?}")) }
    })
    .await;
}

async fn cancel(fleet: &Fleet, id: ExecutionId) {
    assert_eq!(fleet.store.cancel_execution(fleet.tenant, id).await.unwrap(), Cancelled::Requested);
    assert_eq!(fleet.ended(id).await["failure_code"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_limit_of_process_delays_only_its_calls() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__TOOLS__LIMITS__ACT", "1");
    let stage = ["one", "two", "four"].into_iter().fold(Stage::default(), Stage::hold);
    // One side effect in each; the second also calls another tool, which goes first.
    let worker = start(&fleet, &stage, |case| match case {
        "two" => reply_events([work("beside", json!({})), call_of(ACT, "two", json!({}))]),
        _ => reply_events([call_of(ACT, case, json!({}))]),
    })
    .await;
    let one = submit(&fleet, "one").await;
    stage.started("one").await;
    let two = submit(&fleet, "two").await;
    // Its intent is recorded and it waits for a slot. The record and the call beside it go on.
    recorded(&fleet, two, ACT, "intent").await;
    recorded(&fleet, two, WORK, "live").await;
    // An execution that is cancelled while it waits leaves the queue.
    let three = submit(&fleet, "three").await;
    recorded(&fleet, three, ACT, "intent").await;
    cancel(&fleet, three).await;
    assert_eq!((stage.runs("two"), stage.runs("three")), (0, 0));
    // An execution that is cancelled while its call runs frees the slot.
    cancel(&fleet, one).await;
    stage.started("two").await;
    let four = submit(&fleet, "four").await;
    recorded(&fleet, four, ACT, "intent").await;
    stage.release("two");
    stage.started("four").await;
    stage.assert_before("-two", "+four");
    stage.release("four");
    for id in [two, four] {
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    }
    assert_eq!((stage.runs("one"), stage.runs("two"), stage.runs("three"), stage.runs("four")), (1, 1, 0, 1));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_respects_its_limit_of_parallel_calls() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__PARALLEL_CALLS_MAX", "1");
    let stage = Stage::default().hold("one");
    let worker = start(&fleet, &stage, |case| reply_events([work(case, json!({}))])).await;
    let one = submit(&fleet, "one").await;
    stage.started("one").await;
    let two = submit(&fleet, "two").await;
    // The rest of the reply is recorded although its early call has no slot.
    eventually("the turn is recorded", PATIENCE, async || {
        let steps = fleet.steps(two).await;
        if steps.contains(&("turn".to_owned(), "live".to_owned())) { Ok(()) } else { Err(format!("{steps:?}")) }
    })
    .await;
    stage.release("one");
    for id in [one, two] {
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    }
    stage.assert_before("-one", "+two");
    worker.drain().await;
}
