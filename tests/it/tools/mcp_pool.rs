//! Connections to MCP servers: shared, bounded, closed when idle, ended with their owner.

use std::{path::PathBuf, time::Duration};

use longhaul_sdk::FailureCode;
use longhaul_testkit::mcp::HttpMcp;
use longhaul_tools::{McpPoolSettings, Toolbox};
use serde_json::json;

use super::{EVERYWHERE, agent, call, http, settings, sources, sources_with, stdio};
use crate::support::{
    mcp::STDIO_SERVER,
    wait::{SOON, eventually, within},
};

async fn pid(toolbox: &Toolbox) -> u32 {
    call(toolbox, "pid", json!({})).await.text.parse().unwrap()
}

async fn is_gone(pid: u32) {
    let entry = PathBuf::from(format!("/proc/{pid}"));
    // A zombie has an entry but no executable.
    let runs = async || if entry.join("exe").read_link().is_ok() { Err(format!("process {pid} runs")) } else { Ok(()) };
    eventually("the child ends", SOON, runs).await;
}

#[tokio::test]
async fn executions_share_connections_per_environment() {
    let sources = sources();
    let first = Toolbox::open(&stdio(json!({})), &sources, EVERYWHERE).await.unwrap();
    let trusting =
        Toolbox::open(&stdio(json!({"trusted": true, "allow": ["pid"]})), &sources, EVERYWHERE).await.unwrap();
    assert_eq!(pid(&first).await, pid(&trusting).await, "what only the agent looks at does not matter");
    let other = Toolbox::open(&stdio(json!({"env": {"A": "b"}})), &sources, EVERYWHERE).await.unwrap();
    assert_ne!(pid(&first).await, pid(&other).await);
    assert_eq!(sources.mcp.connections(), 2);
}

#[tokio::test]
async fn idle_connection_is_closed_and_reopened() {
    let sources = sources_with(McpPoolSettings { idle_timeout: Duration::from_millis(200), ..settings() });
    let toolbox = Toolbox::open(&stdio(json!({})), &sources, EVERYWHERE).await.unwrap();
    let first = pid(&toolbox).await;
    let closed = async || match sources.mcp.connections() {
        0 => Ok(()),
        open => Err(format!("{open} open")),
    };
    eventually("the idle connection closes", SOON, closed).await;
    is_gone(first).await;
    assert_ne!(pid(&toolbox).await, first);
}

#[tokio::test]
async fn closing_or_dropping_the_pool_ends_its_children() {
    let sources_to_close = sources();
    let toolbox = Toolbox::open(&stdio(json!({})), &sources_to_close, EVERYWHERE).await.unwrap();
    let child = pid(&toolbox).await;
    within("closing", SOON, sources_to_close.mcp.close()).await;
    is_gone(child).await;

    let sources_to_drop = sources();
    let toolbox = Toolbox::open(&stdio(json!({})), &sources_to_drop, EVERYWHERE).await.unwrap();
    let child = pid(&toolbox).await;
    drop((toolbox, sources_to_drop));
    is_gone(child).await;
}

#[tokio::test]
async fn full_pool_evicts_idle_but_no_busy_connections() {
    let sources = sources_with(McpPoolSettings { max_connections: 1, ..settings() });
    let server = HttpMcp::start().await.unwrap();
    let over_http = Toolbox::open(&http(&server.url(), json!({})), &sources, EVERYWHERE).await.unwrap();
    let over_stdio = Toolbox::open(&stdio(json!({})), &sources, EVERYWHERE).await.unwrap();
    assert_eq!(sources.mcp.connections(), 1);

    let busy = tokio::spawn({
        let toolbox = over_http.clone();
        async move { call(&toolbox, "gated", json!({})).await }
    });
    let begun = async || match server.observed.waiting.load(std::sync::atomic::Ordering::SeqCst) {
        1 => Ok(()),
        calls => Err(format!("{calls} calls at the gate")),
    };
    eventually("the call begins", SOON, begun).await;
    let failure = call(&over_stdio, "pid", json!({})).await.ends_run.unwrap();
    assert_eq!(failure.code, FailureCode::TOOL_UNREACHABLE);
    assert!(failure.summary.contains("all 1 connections to tool servers are in use"), "{}", failure.summary);

    server.observed.gate.add_permits(1);
    assert_eq!(busy.await.unwrap().text, "let through");
    assert!(!call(&over_stdio, "pid", json!({})).await.is_error());
}

#[tokio::test]
async fn concurrent_opens_share_one_connect_timeout() {
    let settings = McpPoolSettings { connect_timeout: Duration::from_millis(300), ..settings() };
    let sources = sources_with(settings);
    let agent = agent(json!({"s": {"command": ["/bin/sleep", "60"]}}));
    let all = futures::future::join_all((0..100).map(|_| Toolbox::open(&agent, &sources, EVERYWHERE)));
    // One after the other they would take 30 s.
    for opened in within("all of them fail", SOON, all).await {
        let failure = opened.unwrap_err();
        assert!(failure.summary.ends_with("no handshake within 0.3 s"), "{}", failure.summary);
    }
}

#[tokio::test]
async fn stopped_attempt_leaves_no_child_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 60", file.display());
    let agent = agent(json!({"s": {"command": ["/bin/sh", "-c", script]}, "t": {"command": [STDIO_SERVER]}}));
    let sources = sources();
    let attempt = tokio::spawn(async move { Toolbox::open(&agent, &sources, EVERYWHERE).await.map(|_| ()) });
    let started = async || {
        std::fs::read_to_string(&file)
            .map_err(|error| error.to_string())?
            .trim()
            .parse()
            .map_err(|_| "no pid yet".to_owned())
    };
    let child: u32 = eventually("the child starts", SOON, started).await;
    attempt.abort();
    is_gone(child).await;
}
