//! Sessions of one tenant and agent that run at a time.

use longhaul_sdk::ToolEffect;
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_calls, reply_events, reply_text};
use reqwest::{Method, Response};
use serde_json::json;

use super::{Service, id_of};
use crate::{
    support::{
        api::{Caller, EVERYDAY},
        fleet::{Fleet, agent},
    },
    worker::kit::{TestTool, agent_with},
};

async fn chat(caller: &Caller) -> Response {
    let request = caller.request(Method::POST, "/api/chat/a").header("content-type", "application/json");
    request.body(json!({ "message": "hi" }).to_string()).send().await.unwrap()
}

async fn count(service: &Service, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&service.fleet.db.pool).await.unwrap()
}

#[tokio::test]
async fn session_beyond_the_limit_is_refused_or_waits() {
    let service = Service::limited(Fleet::start().await, agent("a"), 2).await;
    let gate = Gate::new();
    let held = gate.clone();
    service.fleet.llm.answer_with(move |_| reply_events([ev_gate(&held), ev_text("hello")]));
    let _worker = service.fleet.worker();
    let acme = &service.api.acme;
    let running = [chat(acme).await, chat(acme).await];
    assert!(running.iter().all(|answer| answer.status() == 200));

    let refused = chat(acme).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert!(refused.text().await.unwrap().contains("too_many_sessions"));
    assert_eq!(count(&service, "select count(*) from sessions").await, 2, "nothing was stored");
    assert_eq!(service.api.count().await, 2);
    let other = service.api.caller("other", EVERYDAY).await;
    let of_other = chat(&other).await;
    assert_eq!(of_other.status(), 200, "another tenant has its own limit");

    let session = service.begin(json!({})).await;
    let waiting = service.send(&session, "later").await;
    assert_eq!(waiting.status, 202, "{}", waiting.text);
    let row = service
        .fleet
        .until(id_of(&waiting), "it waits for a slot", |row| row["wait_reason"] == "concurrency_limit")
        .await;
    assert_eq!(row["status"], "PENDING");
    let view = acme.get(&session).await.body;
    assert_eq!((&view["status"], &view["wait_reason"]), (&json!("waiting"), &json!("concurrency_limit")));
    gate.open();
    assert_eq!(service.fleet.ended(id_of(&waiting)).await["status"], "FINISHED");
    for answer in running.into_iter().chain([of_other]) {
        assert!(answer.text().await.unwrap().contains("end_turn"));
    }
    assert_eq!(count(&service, "select count(*) from slots where execution_id is not null").await, 0);
    assert_eq!(count(&service, "select max(number)::bigint from slots").await, 2);
    assert_eq!(chat(acme).await.status(), 200);
}

#[tokio::test]
async fn session_that_waits_for_a_person_holds_no_slot() {
    let mut own = agent_with(&["pay"]);
    own.approvals = serde_json::from_value(json!({ "rules": [{ "tool": "pay", "access": "ask" }] })).unwrap();
    let service = Service::limited(Fleet::start().await, own, 1).await;
    service.fleet.llm.answer_with(|request| match request.last_text().as_str() {
        "ask" => reply_calls([("pay", json!({ "value": 1 }))]),
        _ => reply_text("hello"),
    });
    let pay = TestTool::new("pay", ToolEffect::SideEffect, |_, _, _| Ok("done".into()));
    let _worker = service.fleet.worker_with(|builder| builder.tool(pay).unwrap());
    let asking = service.begin(json!({})).await;
    let parked = id_of(&service.send(&asking, "ask").await);
    service.fleet.until(parked, "it waits", |row| row["wait_reason"] == "approval").await;
    assert_eq!(chat(&service.api.acme).await.status(), 200);
}

#[tokio::test]
async fn budget_of_a_session_covers_all_its_messages() {
    let service = Service::of(Fleet::start().await, agent("a")).await;
    service.fleet.llm.answer_with(|request| reply_text(&format!("did {}", request.last_text())));
    let _worker = service.fleet.worker();
    let acme = &service.api.acme;
    let empty = acme.post("/v1/sessions", &json!({ "agent": "a", "budget": {} })).await;
    assert_eq!(empty.error(), (422, "invalid_request"));
    let session = service.begin(json!({ "budget": { "max_model_calls": 2, "on_exhausted": "fail" } })).await;
    for message in ["one", "two"] {
        assert_eq!(service.say(&session, message).await["status"], "FINISHED");
    }
    let spent = &acme.get(&session).await.body["budget"]["spent"];
    assert_eq!(spent["model_calls"], 2, "{spent}");
    let refused = service.send(&session, "three").await;
    assert_eq!(refused.error(), (409, "session_budget_spent"));
    assert_eq!(service.api.count().await, 2);
    let raised = acme.post(&format!("{session}/budget"), &json!({ "max_model_calls": 3 })).await;
    assert_eq!(raised.status, 200, "{}", raised.text);
    assert_eq!(service.say(&session, "three").await["status"], "FINISHED");
    assert_eq!(service.fleet.llm.requests().len(), 3);
    let other = service.begin(json!({})).await;
    assert_eq!(acme.post(&format!("{other}/budget"), &json!({ "max_model_calls": 3 })).await.error().0, 409);
    assert_eq!(acme.delete(&session).await.status, 204);
    let owner = session.rsplit('_').next().unwrap();
    let left: i64 = sqlx::query_scalar("select count(*) from budgets where replace(root_id::text, '-', '') = $1")
        .bind(owner)
        .fetch_one(&service.fleet.db.pool)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn spent_budget_ends_the_message_that_meets_it() {
    let service = Service::of(Fleet::start().await, agent_with(&["look"])).await;
    service.fleet.llm.answer_with(|request| reply_calls([("look", json!({ "value": request.replies() }))]));
    let look = TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("seen".into()));
    let _worker = service.fleet.worker_with(|builder| builder.tool(look).unwrap());
    let session = service.begin(json!({ "budget": { "max_model_calls": 2, "on_exhausted": "fail" } })).await;
    let row = service.say(&session, "one").await;
    assert_eq!(row["failure_code"], "budget_exhausted", "{row}");
    assert_eq!(service.api.acme.get(&session).await.body["stop_reason"], "budget_reached");
    assert_eq!(service.fleet.llm.requests().len(), 2);
}

/// A fork of a message spends the session's budget outside of the session, which stays until it has ended.
#[tokio::test]
async fn session_stays_while_a_fork_spends_its_budget() {
    let service = Service::of(Fleet::start().await, agent("a")).await;
    service.fleet.llm.answer_with(|_| reply_text("done"));
    let worker = service.fleet.worker();
    let acme = &service.api.acme;
    let session = service.begin(json!({ "budget": { "max_model_calls": 9 } })).await;
    let sent = id_of(&service.send(&session, "one").await);
    assert_eq!(service.fleet.ended(sent).await["status"], "FINISHED");
    service.until_idle(&session).await;
    worker.drain().await;
    let fork = acme.post(&format!("/v1/executions/{sent}/fork"), &json!({ "from_step": 1 })).await;
    assert_eq!(fork.status, 201, "{}", fork.text);
    let refused = acme.delete(&session).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    let _worker = service.fleet.worker();
    assert_eq!(service.fleet.ended(fork.body["id"].as_str().unwrap().parse().unwrap()).await["status"], "FINISHED");
    assert_eq!(acme.delete(&session).await.status, 204);
}
