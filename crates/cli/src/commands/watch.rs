//! `longhaul watch ID`: prints events as they happen.

use longhaul_command::{Context, Exit, output};

use crate::{client::Client, progress};

/// Follow the events of an execution until it is over
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts with the first event and goes on over broken connections. Exit code 4 when it ends FAILED.

Examples:
  longhaul watch 019a2c3e-…
  longhaul watch 019a2c3e-… --json | jq -c .kind")]
pub struct WatchArgs {
    /// Id of the execution
    id: String,
}

/// # Errors
/// The execution does not exist, or the API stays unreachable.
pub async fn run(args: WatchArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let ended = progress::follow(&client, &args.id, |event| {
        if context.json {
            return output::json_line(&event.body);
        }
        let at = event.body["at"].as_str().and_then(|at| at.get(11..23)).unwrap_or_default();
        output::line(format!("{:>4}  {at}  {}", event.seq, progress::describe(event)));
    })
    .await?;
    Ok(progress::exit_of(&ended))
}
