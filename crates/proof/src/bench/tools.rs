//! The tool of the rounds over MCP: the worker's own tool as a server in this process.

use hyper::{Request, body::Bytes};
use longhaul_sdk::spec::McpServerSpec;
use longhaul_testkit::{
    http_server::{Answer, HangUp, HttpServer, Protocol, StartError},
    mcp_server,
};
use serde_json::{Value, json};

use super::model::TOOL;

/// Name of the server in the agent.
pub(super) const SERVER: &str = "bench";

/// The running server.
pub(super) struct ToolServer(HttpServer);

impl ToolServer {
    pub(super) async fn start() -> Result<Self, StartError> {
        Ok(Self(HttpServer::start(Protocol::Http1, answer).await?))
    }

    /// The server as an agent configures it.
    pub(super) fn spec(&self) -> serde_json::Result<McpServerSpec> {
        serde_json::from_value(json!({ "url": format!("{}/mcp", self.0.url()), "effects": { TOOL: "read_only" } }))
    }
}

async fn answer(request: Request<Bytes>) -> Result<Answer, HangUp> {
    let tools = json!([mcp_server::listed(TOOL, "Notes a round.", &["round"])]);
    let note = async |params: Value| Ok(format!("noted round {}", params["arguments"]["round"]));
    mcp_server::answer(&request, tools, note).await
}
