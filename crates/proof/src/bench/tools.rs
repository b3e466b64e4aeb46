//! The tool of the rounds over MCP: the worker's own tool as a server in this process.

use longhaul_sdk::spec::McpServerSpec;
use longhaul_testkit::{
    http_server::{HttpServer, Protocol, StartError},
    mcp::raw,
};
use serde_json::{Value, json};

use super::model::TOOL;

/// Name of the server in the agent.
pub(super) const SERVER: &str = "bench";

/// The running server.
pub(super) struct ToolServer(HttpServer);

impl ToolServer {
    pub(super) async fn start() -> Result<Self, StartError> {
        let tools = json!([raw::listed(TOOL, "Notes a round.", &["round"])]);
        let note = async |_, params: Value| Ok(format!("noted round {}", params["arguments"]["round"]));
        Ok(Self(HttpServer::start(Protocol::Http1, raw::router(tools, note)).await?))
    }

    /// The server as an agent configures it.
    pub(super) fn spec(&self) -> serde_json::Result<McpServerSpec> {
        serde_json::from_value(json!({ "url": format!("{}/mcp", self.0.url()), "effects": { TOOL: "read_only" } }))
    }
}
