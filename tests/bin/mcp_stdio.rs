//! The MCP server of the tests as a program, over its standard streams. It writes much to its standard error first,
//! as some servers do, so that a client that does not read it would hang.

use std::io::Write as _;

use longhaul_testkit::mcp::TestMcp;
use rmcp::ServiceExt as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = "starting ".repeat(100);
    for _ in 0..300 {
        writeln!(std::io::stderr(), "{line}")?;
    }
    let running = TestMcp::default().serve(rmcp::transport::stdio()).await?;
    running.waiting().await?;
    Ok(())
}
