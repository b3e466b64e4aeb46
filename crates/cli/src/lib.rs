//! The `longhaul` command: the services, the embedded development server and the client commands.

pub mod client;
pub mod commands;
pub mod compose;
pub mod context;
pub mod embedded;
pub mod env_file;
pub mod exit;
pub mod http_server;
mod json_input;
mod mcp_server;
mod open_files;
pub mod output;
pub mod progress;
pub mod run;
pub mod servers;
pub mod signals;
pub mod spec_files;

/// Executions are many small pieces of memory that live for milliseconds. Without huge pages: one that is used in part is held whole, and
/// thousands that wait for their models use of each page little.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
