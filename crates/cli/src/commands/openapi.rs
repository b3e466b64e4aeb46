//! `longhaul openapi`: prints the document of this build without a server.

use longhaul_command::{Exit, output};

/// Print the API's `OpenAPI` 3.1 document
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  longhaul openapi > openapi.json")]
pub struct OpenapiArgs {}

/// # Errors
/// None.
pub fn run() -> anyhow::Result<Exit> {
    output::line(output::pretty(&longhaul_api::openapi()));
    Ok(Exit::Done)
}
