//! A worker that claims an execution with a journal of an unknown format: it neither acts on the execution nor
//! fails it, and does not claim it again.

use std::time::Duration;

use longhaul_agent::probe::Point;
use longhaul_domain::{ExecutionId, JOURNAL_FORMAT};
use longhaul_sdk::ToolEffect;
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::json;

use crate::{
    support::fleet::Fleet,
    worker::{
        journal::Holds,
        kit::{TestTool, agent_with, definition},
    },
};

/// Marks the last step with the format after this release's, as a newer worker would write it.
async fn make_newer(fleet: &Fleet, id: ExecutionId) {
    let marked = sqlx::query(
        "update steps set body = set_byte(body, 0, get_byte(body, 0) + 2)
         where execution_id = $1 and seq = (select max(seq) from steps where execution_id = $1)",
    )
    .bind(id.0)
    .execute(&fleet.db.pool)
    .await
    .unwrap();
    assert_eq!(marked.rows_affected(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_journal_waits_for_a_newer_worker() {
    let fleet = Fleet::start().await;
    let (look, holds) = (TestTool::recording("look", ToolEffect::SideEffect), Holds::default());
    fleet.apply(&agent_with(&["look"]), &definition("d", &["is_valid_json"])).await;
    fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_calls([("look", json!({ "value": 1 }))]),
        _ => reply_text(r#"{"done": true}"#),
    });
    let id = fleet.submit("d", json!({})).await;
    holds.plan(id, Point::BeforeTurn, 2);
    let first = fleet.worker_with(|builder| builder.tool(look.clone()).unwrap().probe(holds.probe()));
    holds.all_held().await;
    first.kill().await;
    make_newer(&fleet, id).await;
    let (asked, steps) = (fleet.llm.requests().len(), fleet.steps(id).await);
    fleet.bury_workers().await;

    let old = fleet.worker_with(|builder| builder.tool(look.clone()).unwrap());
    let needs = format!("journal:{}+tool:look", JOURNAL_FORMAT + 1);
    fleet.until(id, "it is handed back", |row| row["attempts"] == 2 && row["wait_reason"] == "worker").await;
    let handed: (String, String, i16) = sqlx::query_as(
        "select e.serve_key, a.outcome, e.transient_retries + e.tool_error_retries + e.llm_error_retries + e.crash_count
         from executions e join attempts a on a.execution_id = e.id and a.number = 2 where e.id = $1",
    )
    .bind(id.0)
    .fetch_one(&fleet.db.pool)
    .await
    .unwrap();
    assert_eq!(handed, (needs, "released".to_owned(), 1), "one crash, of the worker that was killed, and no retry");
    // The old worker continues with other executions; later the wait reason shows that a newer worker is missing.
    let other = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(other).await["status"], "FINISHED");
    fleet.advance(Duration::from_secs(60)).await;
    let row = fleet.until(id, "it waits for a newer worker", |row| row["wait_reason"] == "no_worker").await;
    assert_eq!(row["attempts"], 2, "it was met once");
    assert_eq!((fleet.llm.requests().len(), look.count()), (asked + 2, 2), "nothing but the other execution ran");
    assert_eq!(fleet.steps(id).await, steps);

    let newer = fleet.worker_with(|builder| builder.tool(look.clone()).unwrap().journal_format(JOURNAL_FORMAT + 1));
    let row = fleet.ended(id).await;
    assert_eq!(
        (&row["status"], &row["output"], &row["attempts"]),
        (&json!("FINISHED"), &json!({"done": true}), &json!(3))
    );
    assert_eq!(look.count(), 2);
    assert!(fleet.llm.calls().values().all(|&count| count == 1), "{:?}", fleet.llm.calls());
    old.drain().await;
    newer.drain().await;
}
