//! The MCP server of the tests over standard streams.

/// Path of the program; see `tests/bin/mcp_stdio.rs`.
pub(crate) const STDIO_SERVER: &str = env!("CARGO_BIN_EXE_mcp-stdio");
