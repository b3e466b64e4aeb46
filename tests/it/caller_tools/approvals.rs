//! A call that needs an approval becomes pending when it is given.

use longhaul_sdk::AgentSpec;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{ev_call, reply_calls, reply_events, reply_text};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Bench, by_caller, output, refused, tool};
use crate::{
    sessions::chat::parse,
    support::{
        fleet::{PATIENCE, agent},
        wait::eventually,
    },
};

/// Data of the frames of this name.
fn named(text: &str, name: &str) -> Vec<Value> {
    parse(text).into_iter().filter(|frame| frame.name == name).map(|frame| frame.data).collect()
}

async fn bench() -> Bench {
    let approvals = json!({"rules": [{"tool": "pay", "access": "ask"}, {"tool": "wipe", "access": "deny"}]});
    let tools = ["pay", "wipe", "open_file"].map(|name| tool(by_caller(name))).to_vec();
    Bench::of(AgentSpec { tools, approvals: serde_json::from_value(approvals).unwrap(), ..agent("a") }).await
}

/// Decides the only waiting approval.
async fn decide(bench: &Bench, mut decision: Value) {
    let reviewer = bench.api.caller("acme", &[Scope::ExecutionsRead, Scope::ApprovalsDecide]).await;
    let approval = eventually("an approval waits", PATIENCE, async || {
        let page = reviewer.get("/v1/approvals?state=waiting").await.body;
        page["approvals"].get(0).cloned().ok_or(page)
    })
    .await;
    decision["hash"] = approval["hash"].clone();
    let path = format!("/v1/approvals/{}/decision", approval["id"].as_str().unwrap());
    let decided = reviewer.post(&path, &decision).await;
    assert_eq!(decided.status, 200, "{}", decided.text);
}

#[tokio::test]
async fn call_is_pending_once_it_is_approved() {
    let bench = bench().await;
    bench.script(vec![("c1", "pay", json!({"value": 100})), ("c2", "open_file", json!({})), ("c3", "wipe", json!({}))]);
    let worker = bench.worker();
    let id = bench.submit().await;
    let pending = eventually("the free call is pending", PATIENCE, async || {
        let (pending, row) = (bench.pending(id).await, bench.fleet.row(id).await);
        if row["wait_reason"].is_string() && pending.len() == 1 { Ok(pending) } else { Err(row) }
    })
    .await;
    assert_eq!(pending["c2"]["name"], "open_file");
    let forged = json!({"call_id": "c1", "hash": pending["c2"]["hash"], "output": 1});
    assert_eq!(refused(&bench.post(id, json!([forged])).await), [("/results/0/call_id".into(), "unknown_call".into())]);
    worker.kill().await;
    decide(&bench, json!({"decision": "edit", "arguments": {"value": 50}})).await;
    let _worker = bench.worker();
    let pending = bench.waits_for(id, &["c1", "c2"]).await;
    assert_eq!(pending["c1"]["arguments"], json!({"value": 50}), "the approved call is the caller's");
    let results = json!([output(&pending["c1"], json!("paid")), output(&pending["c2"], json!("open"))]);
    assert_eq!(bench.post(id, results).await.status, 200);
    bench.finished(id).await;
    let texts: Vec<String> = bench.results().into_iter().map(|(_, text)| text).collect();
    assert!(texts[0].contains("A reviewer changed") && texts[0].ends_with("paid"), "{}", texts[0]);
    assert!(texts[2].contains("policy of this agent does not allow"), "{}", texts[2]);
    let kinds = bench.fleet.event_kinds(id).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "tool_call_pending").count(), 2, "{kinds:?}");
}

#[tokio::test]
async fn rejected_call_never_reaches_the_caller() {
    let bench = bench().await;
    bench.script(vec![("c1", "pay", json!({"value": 100}))]);
    let _worker = bench.worker();
    let id = bench.submit().await;
    decide(&bench, json!({"decision": "reject", "reason": "not this month"})).await;
    bench.finished(id).await;
    assert!(bench.results()[0].1.contains("not this month"), "{:?}", bench.results());
    assert!(!bench.fleet.event_kinds(id).await.contains(&"tool_call_pending".to_owned()));
}

#[tokio::test]
async fn childs_requests_are_frames_of_the_roots_chat() {
    let spawn = json!({"name": "spawn_sub_agent", "settings": {"agents": ["child"], "tools": ["*"]}});
    let bench = Bench::of(AgentSpec { tools: vec![tool(spawn)], ..agent("a") }).await;
    let approvals = json!({"rules": [{"tool": "pay", "access": "ask"}]});
    let tools = ["pay", "pick"].map(|name| tool(by_caller(name))).to_vec();
    let child = AgentSpec { tools, approvals: serde_json::from_value(approvals).unwrap(), ..agent("child") };
    bench.fleet.store.put_shared_agent(&child).await.unwrap();
    bench.fleet.llm.answer_with(|request| {
        let is_root = request.messages().iter().any(|message| message.to_string().contains("the whole task"));
        match (is_root, request.replies()) {
            (true, 0) => reply_calls([("spawn_sub_agent", json!({"tasks": [{"agent": "child", "prompt": "part"}]}))]),
            (false, 0) => {
                reply_events([ev_call("c1", "pay", &json!({"value": 7})), ev_call("c2", "pick", &json!({"value": 8}))])
            }
            (true | false, _) => reply_text(&request.last_text()),
        }
    });
    let _worker = bench.worker();
    let request = bench.api.acme.request(Method::POST, "/api/chat/a").header("content-type", "application/json");
    let mut stream = request.body(json!({ "message": "the whole task" }).to_string()).send().await.unwrap();
    let mut text = String::new();
    let mut calls = Vec::new();
    // The free call first; the other one is pending once it is approved.
    for count in 1..=2 {
        while calls.len() < count {
            let chunk = tokio::time::timeout(PATIENCE, stream.chunk()).await.expect("the child's calls are frames");
            text.push_str(std::str::from_utf8(&chunk.unwrap().expect("the stream is open")).unwrap());
            calls = named(&text, "tool_use").into_iter().filter(|call| call["pending"] == true).collect();
        }
        if count == 1 {
            decide(&bench, json!({"decision": "approve"})).await;
        }
    }
    let child = named(&text, "sub_agent")[0]["child_id"].clone();
    let (asked, resolved) = (named(&text, "approval_request"), named(&text, "approval_resolved"));
    assert_eq!((asked.len(), &asked[0]["child_id"], &asked[0]["tool"]), (1, &child, &json!("pay")), "{text}");
    assert_eq!((&resolved[0]["id"], &resolved[0]["decision"]), (&asked[0]["id"], &json!("approved")));
    let posted: Vec<Value> = calls.iter().map(|call| output(call, json!("done"))).collect();
    assert!(calls.iter().all(|call| call["execution_id"] == child), "{calls:?}");
    let id = child.as_str().unwrap().parse().unwrap();
    assert_eq!(bench.post(id, json!(posted)).await.status, 200);
    while let Some(chunk) = stream.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert_eq!(named(&text, "done")[0]["stop_reason"], "end_turn");
}
