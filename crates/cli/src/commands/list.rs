//! `longhaul list`.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::Value;

use super::filters::Filters;
use crate::client::Client;

/// List executions, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Filters combine with \"and\". With --json the page as the API answers it, `next_cursor` included.

Examples:
  longhaul list --status FAILED --definition invoice-extraction
  longhaul list --wait-reason retry_backoff
  longhaul list --metadata customer=acme --limit 200 --json | jq -r '.executions[].id'")]
pub struct ListArgs {
    #[command(flatten)]
    filters: Filters,
    /// Executions per page, 1 to 200
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Page to continue with: `next_cursor` of the previous page
    #[arg(long)]
    cursor: Option<String>,
}

/// # Errors
/// A filter is invalid, or the API is unreachable.
pub async fn run(args: ListArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let mut request = client.request(Method::GET, "/v1/executions").query(&args.filters.query());
    request = request.query(&[("limit", args.limit)]);
    if let Some(cursor) = &args.cursor {
        request = request.query(&[("cursor", cursor)]);
    }
    let page = client.send(request).await?.body;
    if context.json {
        output::json(&page);
        return Ok(Exit::Done);
    }
    let mut table = output::table(["ID", "STATUS", "WAITS FOR", "DEFINITION", "AGENT", "TURNS", "CREATED", "FAILURE"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for execution in page["executions"].as_array().into_iter().flatten() {
        table.add_row([
            text(&execution["id"]).into(),
            output::state(&text(&execution["status"])),
            text(&execution["wait_reason"]).into(),
            text(&execution["definition"]["key"]).into(),
            text(&execution["agent"]["key"]).into(),
            execution["usage"]["turns"].to_string().into(),
            text(&execution["created_at"]).chars().take(19).collect::<String>().into(),
            text(&execution["failure"]["code"]).into(),
        ]);
    }
    output::line(table.trim_fmt());
    if let Some(cursor) = page["next_cursor"].as_str() {
        output::note(format!("more with --cursor {cursor}"));
    }
    Ok(Exit::Done)
}
