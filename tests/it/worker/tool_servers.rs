//! Tool servers that start slowly, disappear during a run, or lack a tool that an agent allows.

use std::{path::Path, time::Duration};

use longhaul_domain::ExecutionId;
use longhaul_sdk::AgentSpec;
use longhaul_store::{history::ledger::EffectState, tenants::scope::TenantScope};
use longhaul_testkit::model::{Captured, reply_calls, reply_text};
use serde_json::{Value, json};

use super::kit::definition;
use crate::{
    agent_loop::kit::ledger,
    support::{
        fleet::{Fleet, agent},
        mcp::STDIO_SERVER,
        wait::{SOON, eventually},
    },
};

/// An agent whose server `shelf` is started by this script, with more fields of its specification.
fn agent_of(script: &str, more: Value) -> AgentSpec {
    let mut server = json!({ "command": ["/bin/sh", "-c", script] });
    server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    AgentSpec { mcp_servers: [("shelf".to_owned(), serde_json::from_value(server).unwrap())].into(), ..agent("a") }
}

/// A server that starts once: after its death `gone` exists, and it does not start again.
fn mortal(gone: &Path) -> AgentSpec {
    agent_of(&format!("test ! -e {} && exec {STDIO_SERVER}", gone.display()), json!({}))
}

fn echo(text: &str) -> (&'static str, Value) {
    ("mcp__shelf__echo", json!({ "text": text }))
}

async fn waits(fleet: &Fleet, id: ExecutionId, attempt: u64) {
    fleet
        .until(id, "it waits for its server", |row| {
            row["attempts"] == attempt && row["wait_reason"] == "retry_backoff" || !row["finished_at"].is_null()
        })
        .await;
}

/// Outcomes of the attempts, and the number of spent retries.
async fn attempts(fleet: &Fleet) -> Value {
    fleet
        .json(
            "select jsonb_build_array(
                (select jsonb_agg(jsonb_build_array(outcome, failure_code) order by number) from attempts),
                (select transient_retries + tool_error_retries from executions))",
        )
        .await
}

/// Results of calls in a request, in order.
fn told(request: &Captured) -> Vec<String> {
    let results = request.messages().iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_server_is_waited_for_then_reported() {
    let (fleet, dir) = (Fleet::start().await, tempfile::tempdir().unwrap());
    let gone = dir.path().join("gone");
    fleet.apply(&mortal(&gone), &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_calls([("mcp__shelf__crash_once", json!({ "marker": gone }))]));
    fleet.llm.push(reply_calls([echo("first"), echo("second")]));
    fleet.llm.push(reply_calls([echo("third")]));
    fleet.llm.push(reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    for (attempt, seconds) in [(1, 11), (2, 31), (3, 91)] {
        waits(&fleet, id, attempt).await;
        fleet.advance(Duration::from_secs(seconds)).await;
    }
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let parked = json!(["parked", "tool_unreachable"]);
    assert_eq!(attempts(&fleet).await, json!([[parked, parked, parked, ["finished", null]], 0]));

    let requests = fleet.llm.requests();
    assert_eq!(requests.len(), 4, "no turn was asked again");
    let told = told(&requests[3]);
    assert!(told[0].contains("outcome_unknown"), "{}", told[0]);
    for (told, text) in told[1..].iter().zip(["first", "second", "third"]) {
        let told: Value = serde_json::from_str(told).unwrap();
        assert_eq!(told["call"], json!({"_tool": "mcp__shelf__echo", "arguments": {"text": text}}));
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("tool server `shelf` could not be reached: "), "{message}");
    }

    // The dead server's call may have run; the others were never sent.
    assert_eq!(ledger(&fleet, id).await, [("mcp__shelf__crash_once".to_owned(), EffectState::Unknown)]);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_server_costs_no_retry() {
    let (fleet, dir) = (Fleet::start().await, tempfile::tempdir().unwrap());
    let gone = dir.path().join("gone");
    fleet.apply(&mortal(&gone), &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_calls([("mcp__shelf__crash_once", json!({ "marker": gone }))]));
    fleet.llm.push(reply_calls([echo("back")]));
    fleet.llm.push(reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    waits(&fleet, id, 1).await;
    std::fs::remove_file(&gone).unwrap();
    fleet.advance(Duration::from_secs(11)).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(attempts(&fleet).await, json!([[["parked", "tool_unreachable"], ["finished", null]], 0]));
    assert_eq!(told(&fleet.llm.requests()[2])[1], "back");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_server_start_is_reported() {
    let (fleet, dir) = (Fleet::start().await, tempfile::tempdir().unwrap());
    let go = dir.path().join("go");
    let script = format!("while ! test -e {}; do sleep 0.05; done; exec {STDIO_SERVER}", go.display());
    fleet.apply(&agent_of(&script, json!({})), &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    let reach = TenantScope::from(fleet.tenant);
    eventually("the servers are spoken of", SOON, || async {
        let found = fleet.store.explain_waiting(&reach, id).await.unwrap().unwrap();
        if found.starting == ["shelf"] { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let kinds = fleet.event_kinds(id).await;
    assert_eq!(kinds[..4], ["submitted", "claimed", "tool_servers_starting", "tool_servers_started"], "{kinds:?}");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn allowed_but_missing_tool_is_an_event() {
    let fleet = Fleet::start().await;
    let agent = agent_of(&format!("exec {STDIO_SERVER}"), json!({"allow": ["echo", "ech0"]}));
    fleet.apply(&agent, &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let missing = fleet.json("select jsonb_agg(data) from events where kind = 'tools_missing'").await;
    let reasons = json!({"mcp__shelf__ech0": "the server does not list it"});
    assert_eq!(missing, json!([{"tools": ["mcp__shelf__ech0"], "reasons": reasons, "count": 1}]));
    worker.drain().await;
}
