//! `longhaul ledger ID`.

use longhaul_command::{Context, Exit, output};
use serde_json::json;

use crate::{client::Client, progress};

/// List the tool calls of an execution that may have had a side effect
#[derive(Debug, clap::Args)]
#[command(after_help = "\
States: intended (may have begun, no result), withdrawn (never began), done, failed, reconciled and unknown (a worker \
died
while the call ran, and its tool could or could not say what became of it).

Example:
  longhaul ledger 019a2c3e-…")]
pub struct LedgerArgs {
    /// Id of the execution
    id: String,
}

/// Reads all pages and prints the calls.
///
/// # Errors
/// The execution does not exist, or the API is unreachable.
pub async fn run(args: LedgerArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let path = format!("{}/ledger", progress::path(&args.id));
    let entries = client.all(&path, &[], "entries").await?;
    if context.json {
        output::json(&json!({ "entries": entries }));
        return Ok(Exit::Done);
    }
    if entries.is_empty() {
        output::line("no call may have changed anything");
    }
    for entry in entries {
        let text = |field: &str| entry[field].as_str().unwrap_or("-").to_owned();
        output::line(format!(
            "{:>4}  {:<11}  {:<11}  {}  key {}  from {} to {}",
            entry["seq"].to_string(),
            text("state"),
            text("effect"),
            text("tool"),
            text("idempotency_key"),
            text("started_at"),
            text("finished_at"),
        ));
    }
    Ok(Exit::Done)
}
