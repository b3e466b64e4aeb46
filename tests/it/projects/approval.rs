//! A plan that waits for a person, and who may change it afterwards.

use longhaul_testkit::model::{Gate, ev_gate, reply_text};
use serde_json::json;

use super::{Service, task};
use crate::support::api::EVERYDAY;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_needs_its_scope_and_the_plan_seen() {
    let service = Service::start().await;
    let gate = Gate::new();
    let of_model = gate.clone();
    service.fleet.llm.answer_with(move |_| reply_text("done").before(ev_gate(&of_model)));
    let _worker = service.fleet.worker();
    let author = service.api.caller("acme", EVERYDAY).await;
    let approver = &service.api.acme;
    let project = service.create(vec![task("a", &[])], json!({ "needs_approval": true })).await;
    let approve = format!("{project}/approve");
    assert_eq!(author.post(&approve, &json!({})).await.error(), (403, "missing_scope"));
    assert_eq!(author.post(&format!("{project}/continue"), &json!({})).await.error(), (403, "missing_scope"));

    let plan = |key: &str| json!({ "plan": { "tasks": [task("a", &[]), task(key, &["a"])] } });
    let path = format!("{project}/plan");
    assert_eq!(author.put(&path, &plan("b")).await.status, 200, "nobody has approved anything yet");
    assert_eq!(approver.post(&approve, &json!({ "version": 1 })).await.error(), (409, "plan_changed"));
    assert_eq!(service.get(&project).await["status"], "awaiting_approval");
    assert_eq!(approver.post(&approve, &json!({ "version": 2 })).await.status, 200);
    service.until_task(&project, "a", "running").await;

    assert_eq!(author.put(&path, &plan("unseen")).await.error(), (403, "missing_scope"));
    assert_eq!(service.statuses(&project).await.len(), 2);
    assert!(service.statuses(&project).await.contains_key("b"), "a refused plan changes nothing");
    assert_eq!(approver.put(&path, &plan("c")).await.status, 200);
    gate.open();
    service.until(&project, "completed").await;
    assert!(service.statuses(&project).await.contains_key("c"));
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_ahead_is_removed_by_approvers_only() {
    let service = Service::start().await;
    let author = service.api.caller("acme", EVERYDAY).await;
    let plan = |gate: bool| {
        json!({ "phases": [{ "name": "one", "gate": gate }, { "name": "two" }],
            "tasks": [{ "key": "a", "prompt": "a" }, { "key": "b", "prompt": "b", "phase": "two" }] })
    };
    let project = service.create_with(plan(true), json!({})).await;
    let path = format!("{project}/plan");
    assert_eq!(author.put(&path, &json!({ "plan": plan(false) })).await.error(), (403, "missing_scope"));
    let without = json!({ "plan": { "tasks": [task("a", &[]), task("b", &[])] } });
    assert_eq!(author.put(&path, &without).await.error(), (403, "missing_scope"));
    let mut more = plan(true);
    more["tasks"].as_array_mut().unwrap().push(json!({ "key": "c", "prompt": "c", "phase": "two" }));
    assert_eq!(author.put(&path, &json!({ "plan": more })).await.status, 200, "the gate stays");
    assert_eq!(service.api.acme.put(&path, &json!({ "plan": plan(false) })).await.status, 200);
}
