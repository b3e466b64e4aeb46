//! The tools of a worker, and those that one execution may use.
//!
//! [`ToolRegistry`] exists once per worker, [`Toolbox`] once per execution. An error inside a tool becomes a
//! text for the model and fails the attempt only if the tool requests that.

// The tools of a worker and of an execution, and what their calls come to.
mod any_tool;
mod outcome;
mod registry;
mod settings;
mod tool_name;
mod toolbox;

// Tools of Longhaul's own.
mod browser;
mod fetch_url;
mod host;
mod search_dataset;
mod serial;
mod stop_execution;
mod web_search;
mod workspace;

// Tools of MCP servers, and the connections that tools open.
mod http;
mod mcp;

pub use any_tool::AnyTool;
pub use browser::BrowserTool;
pub use fetch_url::{FETCH_URL, FetchUrl, FetchUrlSettings};
pub use host::{COLLECT_SUB_AGENTS, HostTool, RECALL, REMEMBER, SPAWN_SUB_AGENT};
pub use http::platform_client;
pub use mcp::{
    AllowedNetworks, INHERITED_ENV, McpPool, McpPoolSettings, MissingTool, SecretResolver, check_server, server_of,
};
pub use outcome::CallOutcome;
pub use registry::{ToolFactory, ToolRegistry, ToolRegistryError};
pub use serial::SerialTool;
pub use settings::{are_none, settings_of};
pub use stop_execution::{STOP_EXECUTION, StopExecution};
pub use toolbox::{ServiceTool, ToolSources, Toolbox};
pub use web_search::WebSearch;
pub use workspace::WorkspaceTool;
