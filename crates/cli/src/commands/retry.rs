//! `longhaul retry ID`: a new execution that continues where a FAILED one ended.

use longhaul_command::{Context, Exit};
use reqwest::Method;
use serde_json::json;

use crate::{client::Client, progress};

/// Retry a FAILED execution as a new execution
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What the model and the tools answered before the failure is kept, unless --from-scratch. Prints the new execution's id.

Examples:
  longhaul retry 019a2c3e-… --wait
  longhaul retry 019a2c3e-… --latest --from-scratch")]
pub struct RetryArgs {
    /// Id of the failed execution
    id: String,
    /// Repeat all model and tool calls
    #[arg(long)]
    from_scratch: bool,
    /// Use the newest version of its definition and agent, not the one it ran
    #[arg(long)]
    latest: bool,
    /// Wait until the execution is over, with live progress
    #[arg(long)]
    wait: bool,
}

/// # Errors
/// The execution does not exist or did not fail, or the API is unreachable.
pub async fn run(args: RetryArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let mut request = client.request(Method::POST, &format!("{}/retry", progress::path(&args.id)));
    if args.latest {
        request = request.query(&[("version", "latest")]);
    }
    let answer = client.send(request.json(&json!({"from_scratch": args.from_scratch}))).await?;
    super::submit::finish(&client, answer.body, args.wait, context).await
}
