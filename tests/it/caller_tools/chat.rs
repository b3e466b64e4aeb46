//! Calls that the caller runs, in the stream of a chat.

use longhaul_sdk::AgentSpec;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Bench, by_caller, output, tool};
use crate::{
    sessions::chat::{Sse, parse, without_text},
    support::{
        fleet::{PATIENCE, agent},
        wait::eventually,
    },
};

fn named<'a>(frames: &'a [Sse], name: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame.name == name).map(|frame| &frame.data).collect()
}

#[tokio::test]
async fn chat_streams_pending_calls_and_stays_open() {
    let approvals = json!({"rules": [{"tool": "wipe", "access": "deny"}]});
    let tools = ["open_file", "pick", "wipe"].map(|name| tool(by_caller(name))).to_vec();
    let spec = AgentSpec { tools, approvals: serde_json::from_value(approvals).unwrap(), ..agent("a") };
    let bench = Bench::of(spec).await;
    bench.script(vec![
        ("c1", "open_file", json!({"value": "a.txt"})),
        ("c2", "pick", json!({})),
        ("c3", "wipe", json!({"value": 3})),
    ]);
    let worker = bench.worker();
    let request = bench.api.acme.request(Method::POST, "/api/chat/a").header("content-type", "application/json");
    let mut stream = request.body(json!({ "message": "open it" }).to_string()).send().await.unwrap();
    let session = stream.headers()["x-session-id"].to_str().unwrap().to_owned();
    let mut text = String::new();
    while named(&parse(&text), "tool_use").iter().filter(|call| call["pending"] == true).count() < 2 {
        let chunk = tokio::time::timeout(PATIENCE, stream.chunk()).await.expect("the calls become pending");
        text.push_str(std::str::from_utf8(&chunk.unwrap().expect("the stream is open")).unwrap());
    }
    let view = eventually("the session waits", PATIENCE, async || {
        let view = bench.api.acme.get(&format!("/v1/sessions/{session}")).await.body;
        if view["status"] == "waiting" { Ok(view) } else { Err(view) }
    })
    .await;
    assert_eq!((&view["stop_reason"], &view["wait_reason"]), (&json!("requires_action"), &json!("input")));
    let pending = view["requires_action"].as_array().unwrap().clone();
    worker.kill().await;
    let _worker = bench.worker();
    let id = view["running"].as_str().unwrap().parse().unwrap();
    let results: Vec<Value> = pending.iter().map(|call| output(call, json!("opened"))).collect();
    assert_eq!(bench.post(id, json!(results)).await.status, 200);
    while let Some(chunk) = stream.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let frames = parse(&text);
    let uses = named(&frames, "tool_use");
    let ids: Vec<&Value> = uses.iter().map(|call| &call["call_id"]).collect();
    assert_eq!(ids.len(), 3, "one for each call: {text}");
    for call in uses.iter().filter(|call| call["call_id"] != "c3") {
        let listed = pending.iter().find(|listed| listed["call_id"] == call["call_id"]).unwrap();
        let expected = (&json!(true), &listed["hash"], &listed["arguments"], &listed["name"], &json!(1));
        assert_eq!((&call["pending"], &call["hash"], &call["input"], &call["tool"], &call["turn"]), expected);
    }
    let denied = uses.iter().find(|call| call["call_id"] == "c3").unwrap();
    assert_eq!((&denied["pending"], &denied["input"]), (&Value::Null, &json!({"value": 3})));
    let outputs: Vec<&Value> = named(&frames, "tool_result").into_iter().map(|result| &result["call_id"]).collect();
    assert_eq!(outputs.len(), 3, "{text}");
    assert_eq!(named(&frames, "done")[0]["stop_reason"], "end_turn");

    // Cut after each frame with an id, and resumed at another process.
    let beside = bench.api.beside().await;
    let caller = crate::support::api::Caller { key: bench.api.acme.key.clone(), ..beside.acme.clone() };
    let body = json!({ "message": "open it", "session_id": session }).to_string();
    for (at, frame) in frames.iter().enumerate() {
        let Some(id) = &frame.id else { continue };
        let rest = caller.send(Method::POST, "/api/chat/a", Some(body.clone()), &[("last-event-id", id)]).await;
        let rest = parse(&rest.text);
        assert_eq!(without_text(&rest), without_text(&frames[at + 1..]), "after {id}: {rest:?}");
    }
}
