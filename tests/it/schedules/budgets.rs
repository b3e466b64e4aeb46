//! The budget of a month: reserved before a run starts, settled when it has ended.

use longhaul_testkit::model::reply_text;
use serde_json::{Value, json};

use super::Service;

/// Tokens that the month of the schedule `s` has spent and reserved.
async fn tokens(service: &Service) -> (i64, i64) {
    let month = service.show("s").await["month"].clone();
    let amount = |of: &Value| of["tokens"].as_i64().unwrap();
    (amount(&month["spent"]), amount(&month["reserved"]))
}

#[tokio::test]
async fn month_reserves_before_a_run_and_settles_after() {
    let service = Service::start().await;
    let caps = json!({"max_tokens": 20_000, "max_model_calls": 10});
    service.create(json!({"interval_seconds": 60, "budget": {"max_tokens": 8_000}, "monthly_budget": caps})).await;
    let gate = service.hold();
    let _worker = service.fleet.worker();
    service.to_next_tick().await;
    let firings = service.until(1, "running").await;
    assert_eq!(tokens(&service).await, (0, 8_000));
    // A raise would exceed what the month has reserved.
    let path = format!("/v1/executions/{}/budget", firings[0]["execution_id"].as_str().unwrap());
    let raised = service.api.acme.post(&path, &json!({"max_tokens": 9_000})).await;
    assert_eq!(raised.error(), (409, "budget_of_schedule"));
    gate.open();
    service.until(1, "over").await;
    let (spent, reserved) = tokens(&service).await;
    assert!(spent > 0 && spent <= 8_000 && reserved == 0, "{spent} {reserved}");
}

#[tokio::test]
async fn monthly_budget_is_never_exceeded() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60, "monthly_budget": {"max_model_calls": 3}})).await;
    let _worker = service.fleet.worker();
    for count in 1..=5 {
        service.to_next_tick().await;
        service.until(count, if count <= 3 { "over" } else { "skipped" }).await;
    }
    let firings = service.firings("s").await;
    assert_eq!((&firings[3]["reason"], &firings[4]["reason"]), (&json!("monthly_budget"), &json!("monthly_budget")));
    assert_eq!(service.show("s").await["month"]["spent"]["model_calls"], 3);
    assert_eq!(service.post("/run").await.error(), (409, "run_refused"));
    assert_eq!(service.firings("s").await.len(), 5);
    // A spent budget is no failure.
    assert_eq!(service.show("s").await["failures_in_a_row"], 0);
    service.fleet.advance(std::time::Duration::from_secs(32 * 24 * 3_600)).await;
    service.until(6, "over").await;
    assert_eq!(service.show("s").await["month"]["spent"]["model_calls"], 1);
}

#[tokio::test]
async fn run_is_cut_at_the_rest_of_its_month() {
    let service = Service::start().await;
    let budget = json!({"max_model_calls": 1});
    service.create(json!({"interval_seconds": 60, "monthly_budget": budget, "pause_after": 0})).await;
    // Refused once, so that the run needs a second call.
    service.fleet.llm.answer_with(|_| reply_text(""));
    let _worker = service.fleet.worker();
    service.to_next_tick().await;
    let firings = service.until(1, "over").await;
    assert_eq!(firings[0]["failure_code"], "budget_exhausted", "{firings:#?}");
    assert_eq!(service.show("s").await["month"]["spent"]["model_calls"], 1);
}
