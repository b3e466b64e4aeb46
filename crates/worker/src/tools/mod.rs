//! The tools of a worker, and those that one execution may use.
//!
//! [`ToolRegistry`] exists once per worker, [`Toolbox`] once per execution. An error inside a tool becomes a
//! text for the model and fails the attempt only if the tool requests that.

mod fetch_url;
mod guard;
mod http;
mod mcp;
mod outcome;
mod registry;
mod search_dataset;
mod stop_execution;
mod toolbox;

pub use fetch_url::{FETCH_URL, FetchUrl, FetchUrlSettings};
pub(crate) use http::platform_client;
pub(crate) use mcp::server_of;
pub use mcp::{AllowedNetworks, INHERITED_ENV, McpPool, McpPoolSettings, SecretResolver, check_server};
pub use outcome::CallOutcome;
pub use registry::{AnyTool, ToolFactory, ToolRegistry, ToolRegistryError};
pub(crate) use registry::{are_none, settings_of};
pub use stop_execution::{STOP_EXECUTION, StopExecution};
pub use toolbox::{ToolSources, Toolbox};
