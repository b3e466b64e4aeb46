//! When the sweep plans a run.

use longhaul_store::ends::{Line, Reaction};
use longhaul_store::schedules::{Advanced, Schedule};
use serde_json::{Value, json};

use super::{Service, states};

/// The schedule `s` as the sweep finds it, or `None`.
async fn found(service: &Service) -> Option<Schedule> {
    service.fleet.store.schedules_to_advance(10).await.unwrap().pop()
}

/// Asks for a run of `s`, and returns its execution.
async fn run(service: &Service) -> Value {
    let run = service.post("/run").await;
    assert_eq!(run.status, 202, "{}", run.text);
    run.body["execution_id"].clone()
}

/// Cancels an execution that no worker holds, which ends it.
async fn cancel(service: &Service, execution: &Value) {
    let path = format!("/v1/executions/{}/cancel", execution.as_str().unwrap());
    let cancelled = service.api.acme.post(&path, &json!({})).await;
    assert!(cancelled.status < 300, "{}", cancelled.text);
    let store = &service.fleet.store;
    for ended in store.due_ends(Reaction::Schedule, Line::First, 10).await.unwrap() {
        store.scheduled_run_ended(&ended).await.unwrap();
    }
}

#[tokio::test]
async fn run_that_only_ended_needs_no_plan() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 3600})).await;
    let started = run(&service).await;
    assert!(found(&service).await.is_none());
    cancel(&service, &started).await;
    let ended = found(&service).await.expect("its run has ended");
    assert!(!ended.starts_a_run());
    let advanced = service.fleet.store.advance_schedule(&ended, None).await.unwrap();
    assert_eq!((advanced, states(&service.firings("s").await)), (Some(Advanced::default()), vec!["over"]));
}

#[tokio::test]
async fn tick_during_a_run_needs_no_plan() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60})).await;
    run(&service).await;
    service.to_next_tick().await;
    let due = found(&service).await.expect("its tick has come");
    assert!(!due.starts_a_run());
    service.fleet.store.advance_schedule(&due, None).await.unwrap().expect("it is advanced");
    assert_eq!(states(&service.firings("s").await), ["running", "skipped"]);
}

#[tokio::test]
async fn waiting_run_is_not_lost_without_a_plan() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 3600, "overlap": "queue"})).await;
    let started = run(&service).await;
    assert_eq!(run(&service).await, Value::Null);
    cancel(&service, &started).await;
    let waiting = found(&service).await.expect("its run has ended");
    assert!(waiting.starts_a_run());
    let store = &service.fleet.store;
    // As if it had come after the look.
    assert_eq!(store.advance_schedule(&waiting, None).await.unwrap(), None);
    assert_eq!(states(&service.firings("s").await), ["ended", "queued"]);
    let plan = store.plan_scheduled_run(&waiting, "").await.unwrap();
    let advanced = store.advance_schedule(&waiting, Some(&plan)).await.unwrap().expect("it is advanced");
    assert!(advanced.started.is_some());
    assert_eq!(states(&service.firings("s").await), ["over", "running"]);
}
