//! Restrictions on the tool servers of a stored agent, which the worker checks again: commands (`tools.mcp.stdio`),
//! variables of the worker (`tools.mcp.secret_variables`) and private networks (`tools.mcp.private_addresses`) depend
//! on the agent's owner.

use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_domain::TenantId;
use longhaul_sdk::{AgentSpec, DefinitionSpec, spec::RetrySpec};
use longhaul_testkit::model::reply_text;
use serde_json::{Value, json};

use crate::support::fleet::{Fleet, agent};

/// Runs an agent of this owner under this `tools.mcp.stdio`. Returns the execution, and true if the agent's command
/// was started.
async fn run(setting: &str, owner: impl FnOnce(TenantId) -> Option<TenantId>) -> (Value, bool) {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__TOOLS__MCP__STDIO", setting);
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let command = format!("touch {} && exec {}", started.display(), env!("CARGO_BIN_EXE_mcp-stdio"));
    let server = serde_json::from_value(json!({"command": ["/bin/sh", "-c", command]})).unwrap();
    let agent = AgentSpec { mcp_servers: [("shelf".to_owned(), server)].into(), ..agent("a") };
    // Stored directly, because the API refuses it too.
    fleet.store.put_agent(owner(fleet.tenant), &agent).await.unwrap();
    fleet.store.put_shared_definition(&DefinitionSpec::new("d", "a")).await.unwrap();
    fleet.llm.answer_with(|_| reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.ended(id).await;
    worker.drain().await;
    (row, started.exists())
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_agent_starts_command_only_under_any() {
    let (row, started) = run("applied_only", Some).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("invalid_definition")));
    let summary = row["failure_summary"].as_str().unwrap();
    assert!(summary.contains("`shelf`") && summary.contains("tools.mcp.stdio"), "{summary}");
    assert!(!started, "the command was started");

    let (row, started) = run("any", Some).await;
    assert_eq!((&row["status"], started), (&json!("FINISHED"), true), "{row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_agent_starts_command_unless_off() {
    let (row, started) = run("applied_only", |_| None).await;
    assert_eq!((&row["status"], started), (&json!("FINISHED"), true), "{row}");

    let (row, started) = run("off", |_| None).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("invalid_definition")));
    assert!(!started, "the command was started");
}

/// Runs an agent of this owner whose tool server is to receive the variable that holds the worker's model key, with
/// `allowed` as the variables that tenants may send. Returns the execution.
async fn send_a_variable(allowed: &str, owner: impl FnOnce(TenantId) -> Option<TenantId>) -> Value {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__TOOLS__MCP__SECRET_VARIABLES", allowed);
    fleet.set("LONGHAUL__TOOLS__MCP__PRIVATE_ADDRESSES", "any");
    // No server listens on this port, so a permitted request fails with `tool_unreachable`.
    let server = json!({"url": "http://127.0.0.1:9/mcp", "headers": {"authorization": "Bearer env://CARGO_PKG_NAME"}});
    let server = serde_json::from_value(server).unwrap();
    let agent = AgentSpec { mcp_servers: [("crm".to_owned(), server)].into(), ..agent("a") };
    fleet.store.put_agent(owner(fleet.tenant), &agent).await.unwrap();
    let retry = RetrySpec { max_total: Some(0), ..RetrySpec::default() };
    let definition = DefinitionSpec { retry, ..DefinitionSpec::new("d", "a") };
    fleet.store.put_shared_definition(&definition).await.unwrap();
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.ended(id).await;
    worker.drain().await;
    row
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_agent_sends_only_listed_variables() {
    let row = send_a_variable("OTHER", Some).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("invalid_definition")));
    let summary = row["failure_summary"].as_str().unwrap();
    assert!(summary.contains("`CARGO_PKG_NAME`") && summary.contains("tools.mcp.secret_variables"), "{summary}");

    for row in [send_a_variable("CARGO_PKG_NAME", Some).await, send_a_variable("OTHER", |_| None).await] {
        assert_eq!(row["failure_code"], json!("tool_unreachable"), "{row}");
    }
}

/// Runs an agent of this owner whose tool server is on this machine under `host`. Returns the execution, and true if
/// the server was contacted.
async fn reach(host: &str, owner: impl FnOnce(TenantId) -> Option<TenantId>) -> (Value, bool) {
    let fleet = Fleet::start().await;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = json!({"url": format!("http://{host}:{}/mcp", listener.local_addr().unwrap().port())});
    let server = serde_json::from_value(server).unwrap();
    let agent = AgentSpec { mcp_servers: [("crm".to_owned(), server)].into(), ..agent("a") };
    fleet.store.put_agent(owner(fleet.tenant), &agent).await.unwrap();
    let retry = RetrySpec { max_total: Some(0), ..RetrySpec::default() };
    let definition = DefinitionSpec { retry, ..DefinitionSpec::new("d", "a") };
    fleet.store.put_shared_definition(&definition).await.unwrap();
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    let was_asked = AtomicBool::new(false);
    // Closes every connection at once.
    let hang_up = async {
        loop {
            drop(listener.accept().await.unwrap());
            was_asked.store(true, Ordering::Relaxed);
        }
    };
    let row = tokio::select! {
        row = fleet.ended(id) => row,
        () = hang_up => unreachable!(),
    };
    worker.drain().await;
    (row, was_asked.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_agent_reaches_no_private_network() {
    let (row, asked) = reach("127.0.0.1", Some).await;
    assert_eq!((&row["failure_code"], asked), (&json!("invalid_definition"), false), "{row}");
    let summary = row["failure_summary"].as_str().unwrap();
    assert!(summary.contains("`crm`") && summary.contains("tools.mcp.private_addresses"), "{summary}");

    let (row, asked) = reach("localhost", Some).await;
    assert_eq!((&row["failure_code"], asked), (&json!("tool_unreachable"), false), "{row}");
    let summary = row["failure_summary"].as_str().unwrap();
    assert!(summary.contains("`localhost` is not on the public internet"), "{summary}");

    for host in ["127.0.0.1", "localhost"] {
        let (row, asked) = reach(host, |_| None).await;
        assert_eq!((&row["failure_code"], asked), (&json!("tool_unreachable"), true), "{row}");
    }
}
