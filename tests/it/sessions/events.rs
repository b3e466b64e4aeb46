//! `GET /v1/sessions/{id}/events`, and streams that resume while the model writes.

use std::time::Duration;

use longhaul_sdk::{ToolEffect, spec::ModelSpec};
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_calls, reply_events, reply_text};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::{
    Service,
    chat::{Sse, assembled, parse, without_text},
    id_of,
};
use crate::{
    support::{
        api::Caller,
        fleet::{Fleet, PATIENCE, agent},
        wait::eventually,
    },
    worker::{
        journal::quick_fleet,
        kit::{TestTool, agent_with},
    },
};

/// An open stream.
pub(super) struct Follower {
    answer: Response,
    text: String,
}

impl Follower {
    pub(super) async fn of(
        caller: &Caller,
        method: Method,
        path: &str,
        body: Option<&Value>,
        after: Option<&str>,
    ) -> Self {
        let mut request = caller.request(method, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        Self { answer, text: String::new() }
    }

    /// Reads until the stream's text contains `wanted`.
    pub(super) async fn until(&mut self, wanted: &str) {
        while !self.text.contains(wanted) {
            let chunk = tokio::time::timeout(PATIENCE, self.answer.chunk()).await;
            let chunk = chunk.unwrap_or_else(|_| panic!("no {wanted} in {}", self.text)).unwrap();
            let chunk = chunk.unwrap_or_else(|| panic!("the stream ended without {wanted}: {}", self.text));
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    pub(super) async fn into_events(mut self) -> Vec<Sse> {
        while let Some(chunk) = tokio::time::timeout(PATIENCE, self.answer.chunk()).await.unwrap().unwrap() {
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        parse(&self.text)
    }

    pub(super) fn events(&self) -> Vec<Sse> {
        parse(&self.text)
    }
}

/// A service whose model writes `first `, waits for the gate, and writes `second`.
async fn held_reply(fleet: Fleet) -> (Service, Gate) {
    let service = Service::of(fleet, agent("a")).await;
    let gate = Gate::new();
    let held = gate.clone();
    service.fleet.llm.answer_with(move |_| reply_events([ev_text("first "), ev_gate(&held), ev_text("second")]));
    (service, gate)
}

/// Begins a chat and reads it until the first text. Returns the body that resumes it, and the last id.
async fn cut_chat(service: &Service) -> (Value, String, Follower) {
    let body = json!({ "message": "write" });
    let mut chat = Follower::of(&service.api.acme, Method::POST, "/api/chat/a", Some(&body), None).await;
    chat.until("first ").await;
    // The text may overtake the first event.
    chat.until("id: ").await;
    let events = chat.events();
    let last = events.iter().rev().find_map(|event| event.id.clone()).unwrap();
    let session = events[0].data["session_id"].clone();
    (json!({ "message": "write", "session_id": session }), last, chat)
}

#[tokio::test]
async fn resumed_chat_gets_the_text_so_far() {
    let (service, gate) = held_reply(Fleet::start().await).await;
    let _worker = service.fleet.worker();
    service.fleet.redis.followed_by(1).await;
    let (body, last, chat) = cut_chat(&service).await;
    drop(chat);
    let beside = service.api.beside().await;
    service.fleet.redis.followed_by(2).await;
    let caller = Caller { key: service.api.acme.key.clone(), ..beside.acme.clone() };
    let mut resumed = Follower::of(&caller, Method::POST, "/api/chat/a", Some(&body), Some(&last)).await;
    resumed.until("first ").await;
    let so_far = resumed.events().pop().unwrap();
    assert_eq!((so_far.name.as_str(), &so_far.data["offset"], so_far.id), ("delta", &json!(0), None));
    gate.open();
    let events = resumed.into_events().await;
    assert_eq!(assembled(&events), "first second", "{events:?}");
    assert_eq!(events.last().unwrap().name, "done");
    assert_eq!(service.fleet.llm.requests().len(), 1);
}

#[tokio::test]
async fn lost_text_resets_the_attempt() {
    let (service, gate) = held_reply(Fleet::start().await).await;
    let _worker = service.fleet.worker();
    service.fleet.redis.followed_by(1).await;
    let (body, last, chat) = cut_chat(&service).await;
    drop(chat);
    let execution = last.split('.').next().unwrap().parse().unwrap();
    service.fleet.publisher.void_reply(execution);
    service.fleet.publisher.flush().await;
    let mut resumed = Follower::of(&service.api.acme, Method::POST, "/api/chat/a", Some(&body), Some(&last)).await;
    resumed.until("attempt_reset").await;
    assert_eq!(resumed.events()[0].data["turn"], 1);
    gate.open();
    let events = resumed.into_events().await;
    assert_eq!(assembled(&events), "first second", "{events:?}");
}

#[tokio::test]
async fn worker_killed_in_mid_reply_shows_as_retry() {
    let (service, gate) = held_reply(quick_fleet().await).await;
    let doomed = service.fleet.worker();
    service.fleet.redis.followed_by(1).await;
    let (_, _, chat) = cut_chat(&service).await;
    doomed.kill().await;
    let _survivor = service.fleet.worker();
    eventually("the turn is asked again", PATIENCE, || async {
        let asked = service.fleet.llm.requests().len();
        if asked == 2 { Ok(()) } else { Err(asked) }
    })
    .await;
    gate.open();
    let events = chat.into_events().await;
    assert!(events.iter().any(|event| event.name == "retry"), "{events:?}");
    assert_eq!(assembled(&events), "first second", "{events:?}");
    assert_eq!(events.last().unwrap().data["stop_reason"], "end_turn");
}

#[tokio::test]
async fn session_stream_goes_on_with_the_next_message() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| reply_text(&format!("did {}", request.last_text())));
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, "one").await;
    let path = format!("{session}/events");
    let mut whole = Follower::of(&service.api.acme, Method::GET, &path, None, None).await;
    whole.until("did one").await;
    let mut late = Follower::of(&service.api.acme, Method::GET, &format!("{path}?from=running"), None, None).await;
    service.say(&session, "two").await;
    late.until("\"stop_reason\"").await;
    assert!(late.text.contains("did two") && !late.text.contains("did one"), "{}", late.text);
    whole.until("did two").await;
    whole.until(late.events().last().unwrap().id.as_ref().unwrap()).await;
    let events = whole.events();
    assert_eq!(events.iter().filter(|event| event.name == "done").count(), 2);

    // Cut after each frame with an id, and resumed at another process.
    let beside = service.api.beside().await;
    let caller = Caller { key: service.api.acme.key.clone(), ..beside.acme.clone() };
    for (at, frame) in events.iter().enumerate() {
        let Some(id) = &frame.id else { continue };
        let mut rest = Follower::of(&caller, Method::GET, &path, None, Some(id)).await;
        let expected = without_text(&events[at + 1..]);
        if let Some(last) = expected.last() {
            rest.until(last.id.as_ref().unwrap()).await;
        }
        assert_eq!(without_text(&rest.events()), expected, "after {id}");
    }
    let foreign = service.api.caller("other", crate::support::api::EVERYDAY).await;
    assert_eq!(foreign.get(&path).await.error(), (404, "not_found"));
    assert_eq!(service.api.acme.get(&format!("{path}?from=here")).await.error(), (422, "invalid_request"));
}

#[tokio::test]
async fn deleted_session_ends_its_stream() {
    let service = Service::start().await;
    let session = service.begin(json!({})).await;
    let stream = Follower::of(&service.api.acme, Method::GET, &format!("{session}/events"), None, None).await;
    assert_eq!(service.api.acme.delete(&session).await.status, 204);
    assert_eq!(tokio::time::timeout(Duration::from_secs(10), stream.into_events()).await.unwrap(), []);
}

fn said(message: &Value, text: &str) -> bool {
    message["content"].as_str().is_some_and(|content| content.split("\n\n").any(|said| said == text))
}

#[tokio::test]
async fn used_up_turns_end_the_session() {
    let mut own = agent_with(&["look"]);
    own.limits.max_turns = 2;
    let service = Service::of(Fleet::start().await, own).await;
    service.fleet.llm.answer_with(|request| {
        let is_second = request.messages().iter().any(|message| said(message, "two"));
        if is_second { reply_text("did two") } else { reply_calls([("look", json!({ "value": request.replies() }))]) }
    });
    let look = TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("seen".into()));
    let _worker = service.fleet.worker_with(|builder| builder.tool(look).unwrap());
    let session = service.begin(json!({})).await;
    assert_eq!(service.say(&session, "one").await["failure_code"], "max_turns_exceeded");
    let view = service.api.acme.get(&session).await.body;
    assert_eq!((&view["status"], &view["stop_reason"]), (&json!("ended"), &json!("max_turns")));
    let row = service.say(&session, "two").await;
    assert_eq!(row["status"], "FINISHED", "{row}");
    let view = service.api.acme.get(&session).await.body;
    assert_eq!((&view["status"], &view["stop_reason"]), (&json!("idle"), &json!("end_turn")));
}

#[tokio::test]
async fn view_of_a_session_shows_its_open_calls() {
    let mut own = longhaul_sdk::AgentSpec {
        model: ModelSpec { stream: true, ..ModelSpec::default() },
        ..agent_with(&["look", "pay"])
    };
    own.approvals = serde_json::from_value(json!({ "rules": [{ "tool": "pay", "access": "ask" }] })).unwrap();
    let service = Service::of(Fleet::start().await, own).await;
    service.fleet.llm.answer_with(|_| reply_calls([("look", json!({ "value": 1 })), ("pay", json!({ "value": 1 }))]));
    let look = TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("seen".into()));
    let pay = TestTool::new("pay", ToolEffect::SideEffect, |_, _, _| Ok("done".into()));
    let _worker = service.fleet.worker_with(|builder| builder.tool(look).unwrap().tool(pay).unwrap());
    let session = service.begin(json!({})).await;
    let first = id_of(&service.send(&session, "one").await);
    service.fleet.until(first, "it waits", |row| row["wait_reason"] == "approval").await;
    let view = service.api.acme.get(&session).await.body;
    let calls = view["active_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{view}");
    assert_eq!((&calls[0]["tool"], &calls[0]["status"]), (&json!("pay"), &json!("waiting")));
    assert_eq!(view["sub_agents"], json!([]));
}
