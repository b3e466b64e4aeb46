//! The frames of a chat are a view of the record: every reader gets the same ones, in the conversation's order.

use longhaul_sdk::{AgentSpec, ToolEffect};
use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{Gate, ev_call, ev_gate, ev_text, reply_events, reply_text};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Service,
    chat::{Sse, assembled},
    events::Follower,
};
use crate::{
    support::{
        api::Caller,
        fleet::{FleetWorker, PATIENCE, agent},
        wait::eventually,
    },
    worker::{
        journal::quick_fleet,
        kit::{TestTool, agent_with},
    },
};

/// An agent with a tool that runs at once, one that needs a person, one that its caller runs, and sub-agents.
fn busy_agent() -> AgentSpec {
    let mut own = agent_with(&["look", "pay"]);
    let by_caller = json!({
        "name": "locate", "runs": "caller", "description": "Where it is.",
        "parameters": { "type": "object", "properties": { "value": {} } },
    });
    own.tools.push(serde_json::from_value(by_caller).unwrap());
    own.tools.push(
        serde_json::from_value(json!({ "name": "spawn_sub_agent", "settings": { "agents": ["child"] } })).unwrap(),
    );
    own.approvals = serde_json::from_value(json!({
        "rules": [{ "tool": "pay", "access": "ask" }], "redact": { "pay": ["/value/secret"] },
    }))
    .unwrap();
    own
}

fn worker(service: &Service) -> FleetWorker {
    service.fleet.worker_with(|builder| {
        let builder = builder.tool(TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("blue".into()))).unwrap();
        builder.tool(TestTool::new("pay", ToolEffect::SideEffect, |_, _, _| Ok("paid".into()))).unwrap()
    })
}

fn find<'a>(frames: &'a [Sse], name: &str, call: &str) -> &'a Sse {
    let place = place(frames, name, call);
    &frames[place]
}

fn place(frames: &[Sse], name: &str, call: &str) -> usize {
    let found = frames.iter().position(|frame| frame.name == name && frame.data["call_id"] == call);
    found.unwrap_or_else(|| panic!("no {name} of {call} in {frames:?}"))
}

fn numbered(frames: &[Sse]) -> Vec<Sse> {
    frames.iter().filter(|frame| frame.id.is_some()).cloned().collect()
}

#[tokio::test]
async fn every_reader_gets_the_same_frames() {
    let service = Service::of(quick_fleet().await, busy_agent()).await;
    service.fleet.store.put_shared_agent(&agent("child")).await.unwrap();
    let (early, second) = (Gate::new(), Gate::new());
    let gates = (early.clone(), second.clone());
    service.fleet.llm.answer_with(move |request| {
        if request.last_said().starts_with("task-") {
            return reply_text("found");
        }
        let tasks = ["task-1", "task-2"].map(|task| json!({ "agent": "child", "prompt": task }));
        match request.replies() {
            0 => reply_events([
                ev_text("Let me see. "),
                ev_call("look", "look", &json!({ "value": 1 })),
                // A call is complete when the next one begins.
                ev_call("pay", "pay", &json!({ "value": { "secret": "hidden", "amount": 7 } })),
                ev_gate(&gates.0),
                ev_call("locate", "locate", &json!({ "value": 2 })),
                ev_call("spawn", "spawn_sub_agent", &json!({ "tasks": tasks })),
            ]),
            _ => reply_events([ev_text("All "), ev_gate(&gates.1), ev_text("done")]),
        }
    });
    let doomed = worker(&service);
    service.fleet.redis.followed_by(1).await;
    let body = json!({ "message": "go" });
    let mut live = Follower::of(&service.api.acme, Method::POST, "/api/chat/a", Some(&body), None).await;
    live.until("Let me see").await;
    eventually("a call ends while its reply streams", PATIENCE, || async {
        let ended = "select count(*) from events where kind = 'call'";
        let ended: i64 = sqlx::query_scalar(ended).fetch_one(&service.fleet.db.pool).await.unwrap();
        if ended == 1 { Ok(()) } else { Err(ended) }
    })
    .await;
    early.open();

    live.until("\"policy\"").await;
    let asked = live.events();
    let asked = find(&asked, "approval_request", "pay").data.clone();
    assert_eq!(asked["arguments"], json!({ "value": { "secret": "[redacted]", "amount": 7 } }));
    let decision = json!({ "decision": "approve", "hash": asked["hash"] });
    let path = format!("/v1/approvals/{}/decision", asked["id"].as_str().unwrap());
    let approver = service.api.caller("acme", Scope::ALL).await;
    assert_eq!(approver.post(&path, &decision).await.status, 200);
    live.until("\"pending\":true").await;
    let call = live.events();
    let call = find(&call, "tool_use", "locate");
    let execution = call.id.as_ref().unwrap().split('.').next().unwrap().to_owned();
    let result = json!({ "call_id": "locate", "hash": call.data["hash"], "output": "here" });
    let path = format!("/v1/executions/{execution}/tool-results");
    assert_eq!(service.api.acme.post(&path, &json!({ "results": [result] })).await.status, 200);

    live.until("All ").await;
    doomed.kill().await;
    let _survivor = worker(&service);
    live.until("lease_lost").await;
    second.open();
    let whole = live.into_events().await;
    assert_eq!(whole.last().unwrap().data["stop_reason"], "end_turn");
    assert!(assembled(&whole).ends_with("All done"), "{whole:?}");
    for call in ["look", "pay", "locate", "spawn"] {
        assert!(place(&whole, "tool_use", call) < place(&whole, "tool_result", call), "{whole:?}");
    }

    let whole = numbered(&whole);
    let session = whole[0].data["session_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}/events");
    let done = whole.last().unwrap().id.clone().unwrap();
    let mut late = Follower::of(&service.api.acme, Method::GET, &path, None, None).await;
    late.until(&done).await;
    assert_eq!(numbered(&late.events()), whole, "a late reader");

    let beside = service.api.beside().await;
    let body = json!({ "message": "go", "session_id": session });
    let beside = Caller { key: service.api.acme.key.clone(), ..beside.acme.clone() };
    for (at, frame) in whole.iter().enumerate() {
        for caller in [&service.api.acme, &beside] {
            let resumed = Follower::of(caller, Method::POST, "/api/chat/a", Some(&body), frame.id.as_deref()).await;
            let frames = numbered(&resumed.into_events().await);
            assert_eq!(frames, whole[at + 1..], "after {:?}", frame.id);
        }
    }
    let other = json!({ "message": "something else", "session_id": session });
    let headers = [("last-event-id", done.as_str())];
    let refused = beside.post_as("/api/chat/a", &other, &headers).await;
    assert_eq!(refused.error(), (422, "invalid_request"), "{}", refused.text);
    assert_eq!(refused.body["errors"][0]["path"], Value::from("/message"));
}
