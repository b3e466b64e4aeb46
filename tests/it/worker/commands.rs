//! Tool servers that are started by a command: only for agents whose owner may (`tools.mcp.stdio`), whatever was stored when.

use longhaul_sdk::{AgentSpec, DefinitionSpec};
use longhaul_shared::domain::TenantId;
use serde_json::{Value, json};

use crate::support::{
    fleet::{Fleet, agent},
    llm::reply_text,
};

/// Runs an agent of this owner under this setting. Returns the execution, and whether the agent's command was started.
async fn run(setting: &str, owner: impl FnOnce(TenantId) -> Option<TenantId>) -> (Value, bool) {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__TOOLS__MCP__STDIO", setting);
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let command = format!("touch {} && exec {}", started.display(), env!("CARGO_BIN_EXE_mcp-stdio"));
    let server = serde_json::from_value(json!({"command": ["/bin/sh", "-c", command]})).unwrap();
    let agent = AgentSpec { mcp_servers: [("shelf".to_owned(), server)].into(), ..agent("a") };
    // Past the API, which refuses the same.
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
async fn a_tenants_own_agent_starts_no_command_unless_all_may() {
    let (row, started) = run("applied_only", Some).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("invalid_definition")));
    let summary = row["failure_summary"].as_str().unwrap();
    assert!(summary.contains("`shelf`") && summary.contains("tools.mcp.stdio"), "{summary}");
    assert!(!started, "the command was started");

    let (row, started) = run("any", Some).await;
    assert_eq!((&row["status"], started), (&json!("FINISHED"), true), "{row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_agent_starts_its_command_unless_nobody_may() {
    let (row, started) = run("applied_only", |_| None).await;
    assert_eq!((&row["status"], started), (&json!("FINISHED"), true), "{row}");

    let (row, started) = run("off", |_| None).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("invalid_definition")));
    assert!(!started, "the command was started");
}
