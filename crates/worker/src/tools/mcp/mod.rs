//! Tools of MCP servers: child processes spoken to over their standard streams, and streamable-HTTP endpoints.
//!
//! A server's word counts little: names, sizes and counts are bounded, and what it says about its tools' effects is believed
//! only when the agent trusts it. Secrets are resolved when a connection is made and live in it alone.

mod connection;
mod name;
mod pool;
mod result;
mod secret;
mod server;
mod session;

pub use name::check_server;
pub(crate) use name::server_of;
pub(super) use name::split_name;
pub use pool::{McpPool, McpPoolSettings, Reach};
pub use secret::SecretResolver;
pub(super) use server::McpServer;

pub use connection::INHERITED_ENV;
