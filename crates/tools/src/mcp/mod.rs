//! Tools of MCP servers: child processes over standard input and output, and streamable-HTTP endpoints.
//!
//! Servers are not trusted: names, sizes and counts are bounded, and declared effects of tools are used only if
//! the agent trusts the server. Secrets are resolved for a connection and held only by it.

mod asking;
mod connection;
mod fit;
mod name;
mod pool;
mod pool_settings;
mod result;
mod secret;
mod server;
mod session;

pub use name::check_server;
pub use name::server_of;
pub(super) use name::split_name;
pub use pool::McpPool;
pub use pool_settings::{AllowedNetworks, McpPoolSettings};
pub use secret::SecretResolver;
pub(super) use secret::Secrets;
pub use server::MissingTool;
pub(super) use server::{McpServer, McpTool};

pub use connection::INHERITED_ENV;
