//! The sweep's duties do not depend on each other.

use chrono::TimeDelta;
use longhaul_store::executions::submit::NewExecution;
use longhaul_testkit::model::reply_text;
use serde_json::json;

use super::kit::definition;
use crate::support::fleet::{Fleet, agent};

#[tokio::test]
async fn failing_duty_does_not_stop_the_others() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__SWEEP_TICK_SECONDS", "0.3");
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("done"));
    // The first duty expires unanswered requests, and fails without this column.
    sqlx::query("alter table human_requests rename column expires_at to gone").execute(&fleet.db.pool).await.unwrap();
    assert!(fleet.store.expire_requests(10, None).await.is_err());
    let run_at = Some(fleet.store.now().await.unwrap() + TimeDelta::hours(1));
    let later = NewExecution { run_at, ..fleet.new_execution("d", json!({})).await };
    let later = fleet.submit_new(later).await;
    let worker = fleet.worker();
    fleet.advance(std::time::Duration::from_secs(3_700)).await;
    assert_eq!(fleet.ended(later).await["status"], "FINISHED");
    worker.drain().await;
}
