//! MCP servers: one of rmcp with a tool for everything that can happen to a call, over both transports; and a raw one
//! for calls that break on the wire.

mod http;
pub mod raw;
mod tools;

pub use self::{
    http::HttpMcp,
    tools::{Observed, TestMcp},
};
