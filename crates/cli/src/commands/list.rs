//! `longhaul list`.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::Value;

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
    /// Filter by status: `PENDING`, `IN_PROGRESS`, `FINISHED` or `FAILED`
    #[arg(long)]
    status: Option<String>,
    /// Filter by wait reason, such as `retry_backoff`
    #[arg(long)]
    wait_reason: Option<String>,
    /// Filter by definition key
    #[arg(long)]
    definition: Option<String>,
    /// Filter by agent key
    #[arg(long)]
    agent: Option<String>,
    /// Filter by failure code
    #[arg(long)]
    failure_code: Option<String>,
    /// Filter by queue
    #[arg(long)]
    queue: Option<String>,
    /// List executions started by this execution
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// List the tree below this execution, including itself
    #[arg(long, value_name = "ID")]
    root: Option<String>,
    /// List executions created at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_after: Option<String>,
    /// List executions created before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_before: Option<String>,
    /// Filter by metadata; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// Executions per page, 1 to 200
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Page to continue with: `next_cursor` of the previous page
    #[arg(long)]
    cursor: Option<String>,
}

impl ListArgs {
    fn query(&self) -> Vec<(String, String)> {
        let named = [
            ("status", &self.status),
            ("wait_reason", &self.wait_reason),
            ("definition", &self.definition),
            ("agent", &self.agent),
            ("failure_code", &self.failure_code),
            ("queue", &self.queue),
            ("parent", &self.parent),
            ("root", &self.root),
            ("created_after", &self.created_after),
            ("created_before", &self.created_before),
            ("cursor", &self.cursor),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        let metadata = self.metadata.iter().map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (format!("metadata.{key}"), value.to_owned())
        });
        named.chain(metadata).chain([("limit".to_owned(), self.limit.to_string())]).collect()
    }
}

/// # Errors
/// A filter is invalid, or the API is unreachable.
pub async fn run(args: ListArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let page = client.send(client.request(Method::GET, "/v1/executions").query(&args.query())).await?.body;
    if context.json {
        output::json(&page);
        return Ok(Exit::Done);
    }
    let mut table = output::table(["ID", "STATUS", "WAITS FOR", "DEFINITION", "AGENT", "TURNS", "CREATED", "FAILURE"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for execution in page["executions"].as_array().into_iter().flatten() {
        table.add_row([
            text(&execution["id"]),
            text(&execution["status"]),
            text(&execution["wait_reason"]),
            text(&execution["definition"]["key"]),
            text(&execution["agent"]["key"]),
            execution["usage"]["turns"].to_string(),
            text(&execution["created_at"]).chars().take(19).collect(),
            text(&execution["failure"]["code"]),
        ]);
    }
    output::line(table.trim_fmt());
    if let Some(cursor) = page["next_cursor"].as_str() {
        output::note(format!("more with --cursor {cursor}"));
    }
    Ok(Exit::Done)
}
