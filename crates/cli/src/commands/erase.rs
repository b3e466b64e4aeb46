//! `longhaul erase ID`.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;

use crate::{client::Client, progress};

/// Erase the texts of an ended execution and of everything it started
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Input, output, messages, results, metadata and failure texts are gone for good. Ids, times, states, counts, costs and
the ledger of effects stay. One that has not ended is refused with exit code 6.

Example:
  longhaul erase 019a2c3e-…")]
pub struct EraseArgs {
    /// Id of the execution
    id: String,
}

/// # Errors
/// The execution does not exist or has not ended, or the API is unreachable.
pub async fn run(args: EraseArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let request = client.request(Method::DELETE, &format!("{}/content", progress::path(&args.id)));
    let answer = client.send(request).await?;
    if context.json {
        output::json(&answer.body);
    } else {
        let executions = answer.body["executions"].as_array().map_or(0, Vec::len);
        output::line(format!("erased the texts of {executions} execution(s)"));
    }
    Ok(Exit::Done)
}
