//! `longhaul cancel ID`.

use longhaul_command::{Context, Exit, output};
use reqwest::{Method, StatusCode};

use crate::{client::Client, progress};

/// Cancel an execution; it ends FAILED with code `cancelled`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One that no worker holds ends at once; a running one within 5 seconds. One that is over is refused with exit code 6.

Example:
  longhaul cancel 019a2c3e-…")]
pub struct CancelArgs {
    /// Id of the execution
    id: String,
}

/// # Errors
/// The execution does not exist or is over, or the API is unreachable.
pub async fn run(args: CancelArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let request = client.request(Method::POST, &format!("{}/cancel", progress::path(&args.id)));
    let answer = client.send(request).await?;
    if context.json {
        output::json(&answer.body);
    } else if answer.status == StatusCode::ACCEPTED {
        output::line("its worker was told; it ends within 5 seconds");
    } else {
        output::line("cancelled");
    }
    Ok(Exit::Done)
}
