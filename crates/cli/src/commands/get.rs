//! `longhaul get ID`.

use longhaul_command::{Context, Exit};

use crate::{client::Client, progress};

/// Show an execution
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  longhaul get 019a2c3e-…
  longhaul get 019a2c3e-… --json | jq .output")]
pub struct GetArgs {
    /// Id of the execution
    id: String,
}

/// # Errors
/// The execution does not exist, or the API is unreachable.
pub async fn run(args: GetArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    progress::print(&client.get(&progress::path(&args.id)).await?, context.json);
    Ok(Exit::Done)
}
