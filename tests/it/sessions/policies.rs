//! A message that arrives while another is answered: reject, enqueue, interrupt, rollback.

use longhaul_domain::RequestState;
use longhaul_queue::hints::{Look, LookSubscriber};
use longhaul_sdk::{ToolEffect, spec::ToolRef};
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_calls, reply_events, reply_text};
use serde_json::{Value, json};

use super::{Service, id_of};
use crate::{
    support::{
        fleet::{Fleet, PATIENCE, agent},
        wait::eventually,
    },
    worker::kit::{TestTool, agent_with},
};

/// Answers each message with its text; the first one waits for the gate.
fn hold_first(service: &Service) -> Gate {
    let gate = Gate::new();
    let held = gate.clone();
    service.fleet.llm.answer_with(move |request| {
        let text = request.last_said();
        if text == "one" {
            reply_events([ev_gate(&held), ev_text("did one")])
        } else {
            reply_text(&format!("did {text}"))
        }
    });
    gate
}

async fn until_asked(service: &Service, requests: usize) {
    eventually("the model is asked", PATIENCE, || async {
        let asked = service.fleet.llm.requests().len();
        if asked >= requests { Ok(()) } else { Err(asked) }
    })
    .await;
}

#[tokio::test]
async fn queued_messages_are_answered_in_order() {
    let service = Service::start().await;
    let gate = hold_first(&service);
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let first = service.send(&session, "one").await;
    assert_eq!((first.status, &first.body["is_queued"]), (202, &json!(false)));
    until_asked(&service, 1).await;
    let mut last = None;
    for message in ["two", "three", "four"] {
        let sent = service.send(&session, message).await;
        assert_eq!((sent.status, &sent.body["is_queued"]), (202, &json!(true)), "{}", sent.text);
        last = Some(id_of(&sent));
    }
    let view = service.api.acme.get(&session).await.body;
    assert_eq!((&view["status"], &view["queued"]), (&json!("running"), &json!(3)));
    let waiting = service.fleet.row(last.unwrap()).await;
    assert_eq!((&waiting["status"], &waiting["wait_reason"]), (&json!("PENDING"), &json!("concurrency_limit")));
    let why = service.api.acme.get(&format!("/v1/executions/{}/waiting", last.unwrap())).await.body;
    assert_eq!(why["summary"], "3 earlier messages of its session are answered first", "{why}");
    assert_eq!(why["session"]["running"], first.body["execution_id"]);
    gate.open();
    service.fleet.ended(last.unwrap()).await;
    let said = ["one", "two", "three", "four"].map(|text| [format!("user: {text}"), format!("assistant: did {text}")]);
    assert_eq!(service.transcript(&session).await[1..], said.concat());
    service.until_idle(&session).await;
}

#[tokio::test]
async fn cancelled_queued_message_passes_its_turn_on() {
    let service = Service::start().await;
    let gate = hold_first(&service);
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.send(&session, "one").await;
    until_asked(&service, 1).await;
    let second = service.send(&session, "two").await;
    let third = service.send(&session, "three").await;
    let cancelled = service.api.acme.post(&format!("/v1/executions/{}/cancel", id_of(&second)), &json!({})).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    gate.open();
    assert_eq!(service.fleet.ended(id_of(&third)).await["status"], "FINISHED");
    // The message that was taken back before it was answered is not told to the model.
    let said = service.transcript(&session).await;
    assert_eq!(said[1..], ["user: one", "assistant: did one", "user: three", "assistant: did three"]);
    let asked = service.fleet.llm.requests().last().unwrap().body.to_string();
    assert!(asked.contains("three") && !asked.contains("two"), "{asked}");
}

/// A message that had ended when the cancel came is answered: its reader was told the end.
#[tokio::test]
async fn rolled_back_message_that_finished_is_remembered() {
    let service = Service::start().await;
    let gate = hold_first(&service);
    let _worker = service.fleet.worker();
    let session = service.begin(json!({ "on_busy": "rollback" })).await;
    let first = service.send(&session, "one").await;
    until_asked(&service, 1).await;
    // As a rollback that is committed after the worker has the whole reply.
    sqlx::query("update session_turns set is_rolled_back = true").execute(&service.fleet.db.pool).await.unwrap();
    gate.open();
    assert_eq!(service.fleet.ended(id_of(&first)).await["status"], "FINISHED");
    let second = service.send(&session, "two").await;
    service.fleet.ended(id_of(&second)).await;
    let said = service.transcript(&session).await;
    assert_eq!(said[1..], ["user: one", "assistant: did one", "user: two", "assistant: did two"]);
}

/// A message to an agent that quarantine holds back waits, in a busy session too.
#[tokio::test]
async fn message_to_a_held_agent_waits_its_turn() {
    let service = Service::start().await;
    let gate = hold_first(&service);
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let first = service.send(&session, "one").await;
    until_asked(&service, 1).await;
    let pool = &service.fleet.db.pool;
    sqlx::query(
        "insert into quarantine_groups (tenant_id, definition_version_id, agent_version_id, definition_key, agent_key,
            queues, state, died_builds, held_since, changed_at)
        select tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, array[queue], 'shut', \
            '{}',
            longhaul_now(), longhaul_now()
        from executions",
    )
    .execute(pool)
    .await
    .unwrap();
    let second = service.send(&session, "two").await;
    assert_eq!(second.status, 202, "{}", second.text);
    gate.open();
    service.fleet.ended(id_of(&first)).await;
    let row = service.fleet.until(id_of(&second), "it is held back", |row| row["wait_reason"] == "queue_paused").await;
    assert_eq!(row["status"], "PENDING");
    sqlx::query("delete from quarantine_groups").execute(pool).await.unwrap();
    assert_eq!(service.fleet.ended(id_of(&second)).await["status"], "FINISHED");
    let said = service.transcript(&session).await;
    assert_eq!(said[1..], ["user: one", "assistant: did one", "user: two", "assistant: did two"]);
}

#[tokio::test]
async fn rejected_message_stores_nothing() {
    let service = Service::start().await;
    let gate = hold_first(&service);
    let _worker = service.fleet.worker();
    let session = service.begin(json!({ "on_busy": "reject" })).await;
    service.send(&session, "one").await;
    until_asked(&service, 1).await;
    assert_eq!(service.send(&session, "two").await.error(), (409, "session_busy"));
    let ended = service.api.acme.post(&format!("{session}/end"), &json!({})).await;
    assert_eq!(ended.error(), (409, "session_busy"));
    assert_eq!(service.api.count().await, 1);
    let other = service.send_with(&session, json!({ "message": "two", "on_busy": "enqueue" })).await;
    assert_eq!(other.status, 202, "the message's own policy counts");
    gate.open();
    service.fleet.ended(id_of(&other)).await;
}

#[tokio::test]
async fn interrupt_cancels_and_keeps_what_was_said() {
    let service = Service::start().await;
    let _gate = hold_first(&service);
    let _worker = service.fleet.worker();
    let session = service.begin(json!({ "on_busy": "interrupt" })).await;
    let first = service.send(&session, "one").await;
    until_asked(&service, 1).await;
    let second = service.send(&session, "two").await;
    assert_eq!(second.body["stopped"], first.body["execution_id"]);
    assert_eq!(service.fleet.ended(id_of(&second)).await["status"], "FINISHED");
    let row = service.fleet.ended(id_of(&first)).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("cancelled")));
    assert_eq!(service.transcript(&session).await[1..], ["user: one", "user: two", "assistant: did two"]);
    let idle = service.api.acme.post(&format!("{session}/interrupt"), &json!({})).await;
    assert_eq!((idle.status, &idle.body["status"]), (200, &json!("idle")));
}

#[tokio::test]
async fn interrupt_keeps_the_text_so_far() {
    let service = Service::start().await;
    let gate = Gate::new();
    let held = gate.clone();
    service.fleet.llm.answer_with(move |request| match request.last_said().as_str() {
        "one" => reply_events([ev_text("first "), ev_text("half"), ev_gate(&held), ev_text(" and more")]),
        text => reply_text(&format!("did {text}")),
    });
    let _worker = service.fleet.worker();
    let subscriber = LookSubscriber::start(&service.fleet.config().queue_options().unwrap()).unwrap();
    let mut looks = subscriber.subscribe();
    assert_eq!(looks.recv().await.unwrap(), Look::AtEverything, "the subscription stands");
    let session = service.begin(json!({})).await;
    let first = service.send(&session, "one").await;
    let mut heard = String::new();
    while heard != "first half" {
        let look = tokio::time::timeout(PATIENCE, looks.recv()).await.expect("text arrives").unwrap();
        if let Look::Text(deltas) = look {
            heard.extend(deltas.iter().map(|delta| delta.text.as_str()));
        }
    }
    let interrupted = service.api.acme.post(&format!("{session}/interrupt"), &json!({})).await;
    assert_eq!(interrupted.status, 200, "{}", interrupted.text);
    let row = service.fleet.ended(id_of(&first)).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("cancelled")));
    assert_eq!(service.transcript(&session).await[1..], ["user: one", "assistant: first half"]);
    let page = service.api.acme.get(&format!("{session}/messages")).await.body;
    let marks: Vec<&Value> =
        page["messages"].as_array().unwrap().iter().map(|message| &message["interrupted"]).collect();
    assert_eq!(marks, [&json!(false), &json!(false), &json!(true)]);
    assert_eq!(service.api.acme.get(&session).await.body["stop_reason"], "interrupted");
    service.say(&session, "two").await;
    let requests = service.fleet.llm.requests();
    let last: Vec<&Value> = requests[1].messages().iter().map(|message| &message["content"]).collect();
    assert_eq!(last[1..], [&json!("one"), &json!("first half"), &json!("two")]);
}

#[tokio::test]
async fn interrupt_answers_the_call_that_waits_for_approval() {
    let mut own = agent_with(&["pay"]);
    own.approvals = serde_json::from_value(json!({ "rules": [{ "tool": "pay", "access": "ask" }] })).unwrap();
    let service = Service::of(Fleet::start().await, own).await;
    service.fleet.llm.answer_with(|request| match request.last_said().as_str() {
        "one" => reply_calls([("pay", json!({ "value": 1 }))]),
        text => reply_text(&format!("did {text}")),
    });
    let pay = TestTool::new("pay", ToolEffect::SideEffect, |_, _, _| Ok("done".into()));
    let ran = pay.clone();
    let _worker = service.fleet.worker_with(|builder| builder.tool(pay).unwrap());
    let session = service.begin(json!({})).await;
    let first = id_of(&service.send(&session, "one").await);
    service.fleet.until(first, "it waits", |row| row["wait_reason"] == "approval").await;
    assert_eq!(service.api.acme.get(&session).await.body["stop_reason"], "requires_action");
    let second = service.send_with(&session, json!({ "message": "two", "on_busy": "interrupt" })).await;
    assert_eq!(service.fleet.ended(id_of(&second)).await["status"], "FINISHED");
    let said = service.transcript(&session).await;
    let kept = ["user: one", "assistant: ", "tool: [interrupted before it ran]", "user: two", "assistant: did two"];
    assert_eq!(said[1..], kept);
    let requests = service.fleet.store.requests_of(first).await.unwrap();
    assert_eq!(requests[0].state, RequestState::Closed);
    assert_eq!(ran.count(), 0);
}

#[tokio::test]
async fn rollback_leaves_a_note_of_its_effects() {
    let tool: ToolRef = serde_json::from_value(json!({ "name": "pay" })).unwrap();
    let own = longhaul_sdk::AgentSpec { tools: vec![tool], ..agent_with(&[]) };
    let service = Service::of(Fleet::start().await, own).await;
    let gate = Gate::new();
    let held = gate.clone();
    service.fleet.llm.answer_with(move |request| match (request.replies(), request.last_said().as_str()) {
        (0, "one") => reply_calls([("pay", json!({ "value": 1 }))]),
        (1, _) => reply_events([ev_gate(&held), ev_text("paid")]),
        (_, text) => reply_text(&format!("did {text}")),
    });
    let _worker = service.fleet.worker_with(|builder| {
        builder.tool(TestTool::new("pay", ToolEffect::SideEffect, |_, _, _| Ok("done".into()))).unwrap()
    });
    let session = service.begin(json!({})).await;
    let first = service.send(&session, "one").await;
    until_asked(&service, 2).await;
    let second = service.send_with(&session, json!({ "message": "two", "on_busy": "rollback" })).await;
    assert_eq!(service.fleet.ended(id_of(&second)).await["status"], "FINISHED");
    let said = service.transcript(&session).await;
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[0].contains("withdrawn") && said[0].contains("pay"), "{said:?}");
    assert_eq!(said[2..], ["user: two", "assistant: did two"]);
    let ledger = service.api.acme.get(&format!("/v1/executions/{}/ledger", id_of(&first))).await;
    assert_eq!(ledger.body["entries"][0]["state"], "done");
}

#[tokio::test]
async fn repeated_key_gives_the_same_message() {
    let service = Service::of(Fleet::start().await, agent("a")).await;
    let session = service.begin(json!({})).await;
    let path = format!("{session}/messages");
    let body = json!({ "message": "once" });
    let first = service.api.acme.post_as(&path, &body, &[("idempotency-key", "k")]).await;
    let again = service.api.acme.post_as(&path, &body, &[("idempotency-key", "k")]).await;
    assert_eq!((first.status, again.status), (202, 200), "{}", again.text);
    assert_eq!(first.body["execution_id"], again.body["execution_id"]);
    let other = service.api.acme.post_as(&path, &json!({ "message": "twice" }), &[("idempotency-key", "k")]).await;
    assert_eq!(other.error(), (409, "idempotency_key_reused"));
    let view: Value = service.api.acme.get(&session).await.body;
    assert_eq!((&view["turns"], &view["queued"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn full_session_refuses_messages() {
    let service = Service::start().await;
    let session = service.begin(json!({})).await;
    for full in ["turns = 10000", "turns = 1, bytes = 33554432"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("update sessions set {full}")))
            .execute(&service.fleet.db.pool)
            .await
            .unwrap();
        assert_eq!(service.send(&session, "more").await.error(), (409, "session_full"), "{full}");
    }
    assert_eq!(service.api.count().await, 0);
    let long = "x".repeat(300 * 1024);
    assert_eq!(service.send(&session, &long).await.error(), (413, "payload_too_large"));
}
