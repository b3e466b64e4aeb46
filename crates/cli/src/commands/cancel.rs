//! `longhaul cancel`.

use longhaul_command::{Context, Exit, output};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::filters::{Filters, preview};
use crate::{client::Client, client::ClientError, progress};

/// Cancel executions; they end FAILED with code `cancelled`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One that no worker holds ends at once; a running one within 5 seconds. One that is over is refused with exit code 6.
With filters instead of an id: shows which are open and would be cancelled; with --yes it cancels them.

Examples:
  longhaul cancel 019a2c3e-…
  longhaul cancel --definition mail-triage --status PENDING
  longhaul cancel --definition mail-triage --status PENDING --yes")]
pub struct CancelArgs {
    /// Id of the execution
    #[arg(required_unless_present = "Filters", conflicts_with = "Filters")]
    id: Option<String>,
    #[command(flatten)]
    filters: Option<Filters>,
    /// Cancel the executions that the filters choose
    #[arg(long, requires = "Filters")]
    yes: bool,
}

/// # Errors
/// The execution does not exist or is over, or the API is unreachable.
pub async fn run(args: CancelArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    if let Some(id) = args.id {
        return one(&client, &id, context).await;
    }
    let is_open = |one: &Value| matches!(one["status"].as_str(), Some("PENDING" | "IN_PROGRESS"));
    let chosen = args.filters.unwrap_or_default().choose(&client, is_open).await?;
    if !args.yes {
        preview("cancelled", &chosen);
        return Ok(Exit::Done);
    }
    let (mut cancelled, mut over) = (0, 0);
    for execution in &chosen {
        let id = execution["id"].as_str().unwrap_or_default();
        match client.send(client.request(Method::POST, &format!("{}/cancel", progress::path(id)))).await {
            Ok(_) => cancelled += 1,
            // It ended meanwhile.
            Err(ClientError::Problem(problem)) if problem.is_conflict() => over += 1,
            Err(error) => return Err(error.into()),
        }
    }
    if context.json {
        output::json(&json!({ "cancelled": cancelled, "over": over }));
    } else {
        output::line(format!("{cancelled} executions are cancelled; {over} had ended"));
    }
    Ok(Exit::Done)
}

async fn one(client: &Client, id: &str, context: &Context) -> anyhow::Result<Exit> {
    let answer = client.send(client.request(Method::POST, &format!("{}/cancel", progress::path(id)))).await?;
    if context.json {
        output::json(&answer.body);
    } else if answer.status == StatusCode::ACCEPTED {
        output::line("its worker was told; it ends within 5 seconds");
    } else {
        output::line("cancelled");
    }
    Ok(Exit::Done)
}
