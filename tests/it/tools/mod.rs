//! Tools against real servers: child processes, streamable HTTP, web pages.

mod fetch_url;
mod mcp_calls;
mod mcp_pool;
mod mcp_tools;
mod web_search;

use std::{collections::BTreeMap, sync::Arc};

use longhaul_sdk::AgentConfig;
use longhaul_tools::{
    AllowedNetworks, CallOutcome, FetchUrlSettings, McpPool, McpPoolSettings, SecretResolver, ToolRegistry,
    ToolSources, Toolbox,
};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::mcp::STDIO_SERVER;

/// Allows private addresses, because the servers are on this machine.
const EVERYWHERE: AllowedNetworks = AllowedNetworks { may_be_private: true };
const TOKEN: &str = "t0ken-of-the-tests";

/// An agent with these MCP servers and no other tools.
fn agent(mcp_servers: Value) -> AgentConfig {
    serde_json::from_value(json!({
        "prompt": "p", "model": {}, "tools": [], "mcp_servers": mcp_servers,
        "limits": {"max_tool_result_bytes": 2_000, "tool_timeout_seconds": 20},
    }))
    .unwrap()
}

/// An agent with one server `s`, a child process; `more` extends its specification.
fn stdio(more: Value) -> AgentConfig {
    with(json!({"command": [STDIO_SERVER]}), more)
}

/// An agent with one server `s` at this URL; `more` extends its specification.
fn http(url: &str, more: Value) -> AgentConfig {
    with(json!({ "url": url }), more)
}

fn with(mut spec: Value, more: Value) -> AgentConfig {
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent(json!({ "s": spec }))
}

fn settings() -> McpPoolSettings {
    let base_env = [("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent"), ("LEAKED", "must not reach a child")];
    McpPoolSettings {
        base_env: BTreeMap::from(base_env.map(|(key, value)| (key.to_owned(), value.to_owned()))),
        secrets: SecretResolver::new(|reference| (reference == "env://TOKEN").then(|| SecretString::from(TOKEN))),
        ..McpPoolSettings::default()
    }
}

fn sources_with(settings: McpPoolSettings) -> ToolSources {
    ToolSources {
        registry: ToolRegistry::with_builtin(FetchUrlSettings::default()),
        mcp: McpPool::new(settings),
        ..ToolSources::default()
    }
}

fn sources() -> ToolSources {
    sources_with(settings())
}

async fn call(toolbox: &Toolbox, tool: &str, arguments: Value) -> CallOutcome {
    toolbox.call(&format!("mcp__s__{tool}"), &arguments.to_string(), "key-1", Arc::default()).await
}

/// Returns the error message that the model is shown.
fn message(outcome: &CallOutcome) -> String {
    let told: Value = serde_json::from_str(&outcome.text).unwrap_or_else(|_| panic!("no error: {}", outcome.text));
    told["error"]["message"].as_str().unwrap().to_owned()
}
