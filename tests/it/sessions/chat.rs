//! `POST /api/chat/{agent_id}`: the frames of one turn, whole and resumed after every frame.

use std::collections::BTreeMap;

use longhaul_sdk::{AgentSpec, ToolEffect, spec::ToolRef};
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_calls, reply_events, reply_status, reply_text};
use reqwest::Method;
use serde_json::{Value, json};

use super::Service;
use crate::{
    support::fleet::{Fleet, PATIENCE},
    worker::kit::{TestTool, agent_with},
};

/// One server-sent event: its name, its id if it has one, and its data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sse {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

pub(crate) fn parse(text: &str) -> Vec<Sse> {
    let field = |block: &str, name: &str| {
        block.lines().find_map(|line| line.strip_prefix(name).map(|rest| rest.trim().to_owned()))
    };
    let blocks = text.split("\n\n").filter(|block| block.contains("event:"));
    let read = blocks.map(|block| Sse {
        name: field(block, "event:").unwrap(),
        id: field(block, "id:"),
        data: serde_json::from_str(&field(block, "data:").unwrap()).unwrap(),
    });
    read.collect()
}

/// The frames that every reader gets: the pieces of text, and what voids them, depend on when it reads.
pub(crate) fn without_text(frames: &[Sse]) -> Vec<Sse> {
    frames.iter().filter(|frame| !["delta", "attempt_reset"].contains(&frame.name.as_str())).cloned().collect()
}

/// The text of all turns as a reader assembles it: an offset of 0 begins a turn anew, and `attempt_reset` voids it.
pub(super) fn assembled(events: &[Sse]) -> String {
    let mut turns: BTreeMap<u64, String> = BTreeMap::new();
    for event in events {
        let turn = || event.data["turn"].as_u64().unwrap();
        match event.name.as_str() {
            "attempt_reset" => {
                turns.remove(&turn());
            }
            "delta" => {
                let text = turns.entry(turn()).or_default();
                let offset = usize::try_from(event.data["offset"].as_u64().unwrap()).unwrap();
                assert!(offset == 0 || offset == text.len(), "a gap at {offset} after {text:?}");
                text.truncate(offset);
                text.push_str(event.data["text"].as_str().unwrap());
            }
            _ => {}
        }
    }
    turns.into_values().collect()
}

async fn service_with_tool() -> Service {
    let tool: ToolRef = serde_json::from_value(json!({ "name": "look" })).unwrap();
    let mut own = AgentSpec { tools: vec![tool], ..agent_with(&[]) };
    own.approvals.redact = [("look".to_owned(), vec!["/value/token".to_owned()])].into();
    Service::of(Fleet::start().await, own).await
}

#[tokio::test]
async fn chat_streams_a_turn_with_tools() {
    let service = service_with_tool().await;
    service.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_calls([("look", json!({ "value": {"token": "hidden", "at": 7} }))]),
        _ => reply_text("it is blue"),
    });
    let _worker = service.fleet.worker_with(|builder| {
        builder.tool(TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("blue".into()))).unwrap()
    });
    let whole = service.api.acme.post("/api/chat/a", &json!({ "message": "which colour?" })).await;
    assert_eq!(whole.status, 200, "{}", whole.text);
    let session = whole.headers["x-session-id"].to_str().unwrap().to_owned();
    let frames = parse(&whole.text);
    let mut recorded = without_text(&frames);
    recorded.retain(|frame| frame.name != "status");
    let names: Vec<&str> = recorded.iter().map(|frame| frame.name.as_str()).collect();
    assert_eq!(names, ["tool_use", "tool_result", "done"], "{}", whole.text);
    assert_eq!(assembled(&frames), "it is blue");
    let of = |name: &str| frames.iter().find(|frame| frame.name == name).unwrap().data.clone();
    assert_eq!(of("tool_use")["input"], json!({ "value": {"token": "[redacted]", "at": 7} }));
    assert_eq!((&of("tool_result")["output"], &of("tool_result")["tool"]), (&json!("blue"), &json!("look")));
    assert_eq!(of("tool_use")["call_id"], of("tool_result")["call_id"]);
    assert_eq!((&of("done")["stop_reason"], &of("done")["session_id"]), (&json!("end_turn"), &json!(session)));
    assert!(of("done")["token_usage"]["input"].as_i64().unwrap() > 0);

    // Cut after each frame with an id, and resumed at another process.
    let beside = service.api.beside().await;
    let body = json!({ "message": "which colour?", "session_id": session }).to_string();
    for (at, frame) in frames.iter().enumerate() {
        let Some(id) = &frame.id else { continue };
        let headers = [("last-event-id", id.as_str())];
        let caller = crate::support::api::Caller { key: service.api.acme.key.clone(), ..beside.acme.clone() };
        let rest = caller.send(Method::POST, "/api/chat/a", Some(body.clone()), &headers).await;
        let rest = parse(&rest.text);
        assert_eq!(without_text(&rest), without_text(&frames[at + 1..]), "after {id}: {rest:?}");
    }
    assert_eq!(service.fleet.llm.requests().len(), 2, "a resume asks nothing");
}

#[tokio::test]
async fn text_arrives_while_the_model_writes() {
    let service = Service::start().await;
    let gate = Gate::new();
    let held = gate.clone();
    service.fleet.llm.answer_with(move |_| reply_events([ev_text("first "), ev_gate(&held), ev_text("second")]));
    let _worker = service.fleet.worker();
    service.fleet.redis.followed_by(1).await;
    let body = json!({ "message": "write" }).to_string();
    let mut answer = service
        .api
        .acme
        .request(Method::POST, "/api/chat/a")
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await
        .unwrap();
    let mut text = String::new();
    while !text.contains("first ") {
        let chunk = tokio::time::timeout(PATIENCE, answer.chunk()).await.expect("text comes before the reply's end");
        text.push_str(std::str::from_utf8(&chunk.unwrap().expect("the stream goes on")).unwrap());
    }
    gate.open();
    while let Some(chunk) = answer.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert_eq!(assembled(&parse(&text)), "first second", "{text}");
}

#[tokio::test]
async fn repeated_key_streams_the_same_turn() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("once"));
    let _worker = service.fleet.worker();
    let acme = &service.api.acme;
    let body = json!({ "message": "hi" });
    let first = acme.post_as("/api/chat/a", &body, &[("idempotency-key", "k")]).await;
    let again = acme.post_as("/api/chat/a", &body, &[("idempotency-key", "k")]).await;
    assert_eq!((first.status, again.status), (200, 200), "{}", again.text);
    assert_eq!(without_text(&parse(&again.text)), without_text(&parse(&first.text)));
    assert_eq!((service.api.count().await, service.fleet.llm.requests().len()), (1, 1));
    let other = acme.post_as("/api/chat/a", &json!({ "message": "ho" }), &[("idempotency-key", "k")]).await;
    assert_eq!(other.error(), (409, "idempotency_key_reused"));
    let (one, two) = (json!({ "agent": "a" }), json!({ "agent": "a", "on_busy": "reject" }));
    let created = acme.post_as("/v1/sessions", &one, &[("idempotency-key", "s")]).await;
    let repeated = acme.post_as("/v1/sessions", &one, &[("idempotency-key", "s")]).await;
    assert_eq!((created.status, repeated.status), (201, 200));
    assert_eq!(created.body["id"], repeated.body["id"]);
    let refused = acme.post_as("/v1/sessions", &two, &[("idempotency-key", "s")]).await;
    assert_eq!(refused.error(), (409, "idempotency_key_reused"));
}

#[tokio::test]
async fn failed_chat_ends_with_error_and_done() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_status(400, "no"));
    let _worker = service.fleet.worker();
    let answer = service.api.acme.post("/api/chat/a", &json!({ "message": "hi" })).await;
    let frames = parse(&answer.text);
    let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).filter(|name| *name != "status").collect();
    assert_eq!(names, ["error", "done"], "{}", answer.text);
    assert_eq!(frames.last().unwrap().data["stop_reason"], "failed");
}

#[tokio::test]
async fn refusals_come_before_the_stream() {
    let service = Service::start().await;
    let acme = &service.api.acme;
    assert_eq!(acme.post("/api/chat/unknown", &json!({ "message": "hi" })).await.error(), (422, "unknown_agent"));
    assert_eq!(acme.post("/api/chat/a", &json!({ "message": "" })).await.error(), (422, "invalid_request"));
    let foreign = json!({ "message": "hi", "session_id": "sess_00000000000000000000000000000000" });
    assert_eq!(acme.post("/api/chat/a", &foreign).await.error(), (404, "not_found"));
    assert_eq!(service.api.nobody().post("/api/chat/a", &json!({ "message": "hi" })).await.status, 401);
    assert_eq!(service.api.count().await, 0);
}
