//! Calls that wait for a person's decision, and their results.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use longhaul_agent::probe::{Point, Probe};
use longhaul_domain::{ExecutionId, RequestKind, RequestState};
use longhaul_store::human_requests::Verdict;
use serde_json::json;

use super::people::{Office, pay_needs_a_person};
use crate::support::{fleet::PATIENCE, wait::eventually};

#[tokio::test(flavor = "multi_thread")]
async fn blocked_call_raises_no_approval_before_its_values_c40() {
    let office = Office::open(pay_needs_a_person(), true).await;
    office.script(vec![
        ("c1", "look", json!({"amount": 7, "_outputPath": "†state.sum"})),
        ("c2", "pay", json!({"amount": "†state.sum", "to": "A"})),
    ]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.gate.reached().await;
    assert_eq!(office.count(id, RequestKind::Approval).await, 0, "what it would pay is not known yet");
    office.gate.open();
    let request = office.waits(id, 1).await;
    assert_eq!(String::from_utf8_lossy(&request.arguments), r#"{"amount":7,"to":"A"}"#);
    assert_eq!((request.tool.as_str(), request.policy.as_deref()), ("pay", Some("pay")));
    office.decide(&request, Verdict::Approve, None).await;
    office.finished(id).await;
    assert_eq!(office.given("pay"), [json!({"amount": 7, "to": "A"})]);
    assert_eq!(office.results()["c2"], "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn sibling_calls_run_while_one_awaits_a_person_c41() {
    let office = Office::open(pay_needs_a_person(), true).await;
    office.script(vec![
        ("c1", "pay", json!({"amount": 1})),
        ("c2", "look", json!({"amount": 2})),
        ("c3", "note", json!({"amount": 3})),
    ]);
    let _worker = office.worker();
    let id = office.submit().await;
    // `look` runs while the approval is open.
    office.gate.reached().await;
    eventually("the approval is raised", PATIENCE, async || match office.count(id, RequestKind::Approval).await {
        1 => Ok(()),
        count => Err(format!("{count} are there")),
    })
    .await;
    office.gate.open();
    let request = office.waits(id, 1).await;
    assert_eq!((office.given("look").len(), office.given("note").len(), office.given("pay").len()), (1, 1, 0));
    office.decide(&request, Verdict::Approve, None).await;
    office.finished(id).await;
    assert_eq!((office.given("look").len(), office.given("note").len(), office.given("pay").len()), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_is_a_result_and_fails_dependants_c42() {
    let office = Office::open(pay_needs_a_person(), false).await;
    office.script(vec![
        ("c1", "pay", json!({"amount": 1, "_outputPath": "†state.paid"})),
        ("c2", "note", json!({"amount": "†state.paid"})),
        ("c3", "look", json!({"amount": 2})),
    ]);
    let _worker = office.worker();
    let id = office.submit().await;
    let request = office.waits(id, 1).await;
    office.decide(&request, Verdict::Reject, Some("too much")).await;
    office.finished(id).await;
    let results = office.results();
    let rejected: serde_json::Value = serde_json::from_str(&results["c1"]).unwrap();
    assert_eq!(rejected["error"], json!({"type": "rejected", "message": "action rejected by user: too much"}));
    assert!(results["c2"].contains("dependency_failed"), "{}", results["c2"]);
    assert_eq!(results["c3"], "2");
    assert!(office.given("pay").is_empty() && office.given("note").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_ends_the_run_under_on_reject_end() {
    let policy = json!({"rules": [{"tool": "pay", "access": "ask"}], "on_reject": "end"});
    let office = Office::open(policy, false).await;
    office.script(vec![("c1", "pay", json!({"amount": 1})), ("c2", "look", json!({"amount": 2}))]);
    let _worker = office.worker();
    let id = office.submit().await;
    let request = office.waits(id, 1).await;
    office.decide(&request, Verdict::Reject, None).await;
    let row = office.fleet.ended(id).await;
    assert_eq!((&row["failure_code"], &row["failure_class"]), (&json!("human_rejected"), &json!("human_rejected")));
    assert_eq!(row["retries"], 0, "never retried");
    assert_eq!(office.fleet.llm.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_arguments_are_checked_run_and_reported_c43() {
    let office = Office::open(pay_needs_a_person(), false).await;
    office.script(vec![("c1", "pay", json!({"amount": 100})), ("c2", "pay", json!({"amount": 200}))]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.waits(id, 2).await;
    let [first, second] = office.wanted(id).await.try_into().unwrap();
    let edit = |text: &str| Verdict::Edit { arguments: text.as_bytes().to_vec() };
    office.decide(&first, edit(r#"{"amount": 10, "to": "B"}"#), Some("less")).await;
    office.decide(&second, edit(r#"{"amount": "much"}"#), None).await;
    office.finished(id).await;
    assert_eq!(office.given("pay"), [json!({"amount": 10, "to": "B"})], "what does not fit the tool did not run");
    let results = office.results();
    let said =
        "[A reviewer changed the arguments of this call. It ran with {\"amount\":10,\"to\":\"B\"}. Reason: less]\n10";
    assert_eq!(results["c1"], said);
    assert!(
        results["c2"].contains("structural") && results["c2"].contains("a reviewer changed this call"),
        "{}",
        results["c2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replacement_is_checked_by_the_policy_again_c44() {
    let policy = json!({"rules": [
        {"tool": "pay", "access": "ask"},
        {"tool": "note", "when": "arguments.amount > 5", "access": "ask"},
        {"tool": "wipe", "access": "deny"},
    ]});
    let office = Office::open(policy, false).await;
    office.script(vec![
        ("c1", "pay", json!({"amount": 1})),
        ("c2", "pay", json!({"amount": 2})),
        ("c3", "pay", json!({"amount": 3})),
    ]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.waits(id, 3).await;
    let replace = |tool: &str, amount: i64| Verdict::Replace {
        tool: tool.into(),
        arguments: json!({ "amount": amount }).to_string().into_bytes(),
    };
    let [free, denied, asked] = office.wanted(id).await.try_into().unwrap();
    office.decide(&free, replace("note", 4), None).await;
    office.decide(&denied, replace("wipe", 4), None).await;
    office.decide(&asked, replace("note", 9), None).await;
    // The replacement needs an approval of its own.
    let again = office.waits(id, 4).await;
    assert_eq!((again.tool.as_str(), again.round, again.state), ("note", 1, RequestState::Waiting));
    assert_eq!(office.given("note"), [json!({"amount": 4, "to": ""})]);
    office.decide(&again, Verdict::Approve, None).await;
    office.finished(id).await;
    assert_eq!(office.given("note").len(), 2);
    assert!(office.given("wipe").is_empty() && office.given("pay").is_empty());
    let results = office.results();
    assert!(
        results["c1"].starts_with("[A reviewer put a call of `note` in the place of this one."),
        "{}",
        results["c1"]
    );
    assert!(results["c2"].contains("does not allow the call of `wipe`"), "{}", results["c2"]);
    assert!(results["c3"].ends_with("\n9"), "{}", results["c3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_run_holds_no_permit_and_survives_restart_c45() {
    let mut office = Office::open(pay_needs_a_person(), false).await;
    office.fleet.set("LONGHAUL__WORKER__CONCURRENCY", "1");
    office.script(vec![("c1", "pay", json!({"amount": 1})), ("c2", "look", json!({"amount": 2}))]);
    let worker = office.worker();
    let (first, second) = (office.submit().await, office.submit().await);
    // With one permit, the second execution can only get here if the first holds none.
    let requests = [office.waits(first, 1).await, office.waits(second, 1).await];
    worker.kill().await;
    let _worker = office.worker();
    for request in &requests {
        office.decide(request, Verdict::Approve, None).await;
    }
    office.finished(first).await;
    office.finished(second).await;
    assert_eq!(office.fleet.llm.requests().len(), 4, "nothing is asked twice");
    assert_eq!((office.given("pay").len(), office.given("look").len()), (2, 2), "and nothing runs twice");
    assert_eq!((office.wanted(first).await.len(), office.wanted(second).await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_rejects_with_its_own_text_c46() {
    let office = Office::open(pay_needs_a_person(), false).await;
    office.script(vec![("c1", "pay", json!({"amount": 1}))]);
    let _worker = office.worker();
    let id = office.submit().await;
    let request = office.waits(id, 1).await;
    office.let_expire().await;
    office.finished(id).await;
    let text = office.results()["c1"].clone();
    assert!(text.contains(r#""type":"rejected""#) && text.contains("nobody decided on this action"), "{text}");
    assert!(!text.contains("action rejected by user"), "{text}");
    let states: Vec<_> = office.wanted(id).await.iter().map(|request| request.state).collect();
    assert_eq!((states, office.given("pay").len()), (vec![RequestState::Expired], 0), "{request:?}");
    let kinds = office.fleet.event_kinds(id).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "approval_expired").count(), 1, "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_would_write_an_approval_is_refused_c47() {
    let office = Office::open(json!({}), false).await;
    office.script(vec![
        ("c1", "look", json!({"amount": 1, "_outputPath": "†state.approvals.pay"})),
        ("c2", "look", json!({"amount": 2, "_outputPath": "†state.free || †state.approvals.pay"})),
    ]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.finished(id).await;
    for (call, text) in office.results() {
        assert!(text.contains("structural") && text.contains("approvals are given by people"), "{call}: {text}");
    }
    assert!(office.given("look").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_call_names_the_rule_and_raises_no_approval() {
    let policy = json!({"rules": [{"tool": "pay", "when": "arguments.amount > 10", "access": "deny"}]});
    let office = Office::open(policy, false).await;
    office.script(vec![("c1", "pay", json!({"amount": 11})), ("c2", "pay", json!({"amount": 10}))]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.finished(id).await;
    let results = office.results();
    assert!(results["c1"].contains("(rule: pay when arguments.amount > 10)"), "{}", results["c1"]);
    assert_eq!((results["c2"].as_str(), office.given("pay").len()), ("10", 1));
    assert!(office.wanted(id).await.is_empty());
}

/// Holds the first attempt that reaches the point for ever.
fn hold_at(wanted: Point, held: &Arc<Mutex<Option<ExecutionId>>>) -> Probe {
    let held = Arc::clone(held);
    Probe::armed(move |point, id| {
        let mut held = held.lock().unwrap();
        if point == wanted && held.is_none() {
            *held = Some(id);
            return std::future::pending().boxed();
        }
        std::future::ready(()).boxed()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_death_around_approval_asks_and_runs_once() {
    let points =
        [Point::TurnRecorded, Point::PutBeforePeople, Point::BeforeConclusion, Point::Concluded, Point::Restored];
    for point in points {
        let office = Office::open(pay_needs_a_person(), false).await;
        office.script(vec![("c1", "pay", json!({"amount": 1})), ("c2", "look", json!({"amount": 2}))]);
        let held = Arc::default();
        let worker = office.fleet.worker_with(|builder| office.hire(builder, hold_at(point, &held)));
        let id = office.submit().await;
        eventually("the first attempt stands at the point", PATIENCE, async || {
            held.lock().unwrap().ok_or_else(|| format!("{point:?} is not reached"))
        })
        .await;
        worker.kill().await;
        let _worker = office.worker();
        let request = office.waits(id, 1).await;
        office.decide(&request, Verdict::Approve, None).await;
        office.finished(id).await;
        assert_eq!((office.wanted(id).await.len(), office.given("pay").len()), (1, 1), "{point:?}");
        let kinds = office.fleet.event_kinds(id).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "approval_requested").count(), 1, "{point:?}: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_while_siblings_run_wakes_the_execution() {
    let office = Office::open(pay_needs_a_person(), true).await;
    office.script(vec![("c1", "pay", json!({"amount": 1})), ("c2", "look", json!({"amount": 2}))]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.gate.reached().await;
    let request =
        eventually("the approval is raised", PATIENCE, async || office.wanted(id).await.pop().ok_or("none is there"))
            .await;
    // The sibling's result is committed after the decision, so the attempt has seen the newer wake counter when it
    // parks.
    office.decide(&request, Verdict::Approve, None).await;
    office.gate.open();
    office.finished(id).await;
    assert_eq!(office.given("pay").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_waits_at_gate_for_a_persons_approval() {
    // Approved, the gate holds true; edited, it holds the decider's value. It is requested once.
    let given = |body: &str| Verdict::Edit { arguments: body.as_bytes().to_vec() };
    for (verdict, paid) in [(given("7"), Some(7)), (Verdict::Reject, None)] {
        let office = Office::open(json!({"rules": []}), false).await;
        office.script(vec![
            ("c1", "look", json!({"amount": 1})),
            ("c2", "pay", json!({"amount": "†state.approvals.refund"})),
            ("c3", "note", json!({"amount": "†state.approvals.refund"})),
        ]);
        let worker = office.worker();
        let id = office.submit().await;
        let request = office.waits(id, 1).await;
        assert_eq!((office.given("look").len(), office.given("pay").len()), (1, 0));
        assert_eq!(office.count(id, longhaul_domain::RequestKind::Approval).await, 1);
        // The parked run survives its worker.
        worker.kill().await;
        office.decide(&request, verdict, Some("by the book")).await;
        let _next = office.worker();
        office.finished(id).await;
        let results = office.results();
        match paid {
            Some(amount) => {
                for tool in ["pay", "note"] {
                    assert_eq!(office.given(tool)[0]["amount"], amount);
                }
            }
            None => {
                assert!(office.given("pay").is_empty() && office.given("note").is_empty());
                assert!(results["c2"].contains("action rejected by user: by the book"), "{}", results["c2"]);
            }
        }
        assert_eq!(office.given("look").len(), 1);
    }
}
