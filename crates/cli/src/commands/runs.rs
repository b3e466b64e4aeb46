//! `longhaul runs`: durable runs of programs.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;

/// List, show, end and cancel durable runs of programs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A run is made by `longhaul run`, or by the first model call that names it.

Examples:
  longhaul runs
  longhaul runs list --status open
  longhaul runs show report-7
  longhaul runs end report-7 --failed --note 'the source is gone'
  longhaul runs cancel report-7")]
pub struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum RunsCommand {
    /// List runs, newest first
    List(ListArgs),
    /// Show a run and its model calls
    Show {
        /// Key of the run
        key: String,
        /// Calls to show, 1 to 200
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
        /// Page of calls to continue with: `next_cursor` of the previous page
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Cancel a run: calls under way are cancelled, further ones refused
    Cancel {
        /// Key of the run
        key: String,
    },
    /// End a run: further model calls are refused
    End {
        /// Key of the run
        key: String,
        /// End it as failed; otherwise as finished
        #[arg(long)]
        failed: bool,
        /// Reason for the failure, for people
        #[arg(long, value_name = "TEXT", requires = "failed")]
        note: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Filter by status: open, finished, failed or cancelled
    #[arg(long)]
    status: Option<String>,
    /// Runs per page, 1 to 200
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Page to continue with: `next_cursor` of the previous page
    #[arg(long)]
    cursor: Option<String>,
}

impl Default for ListArgs {
    fn default() -> Self {
        Self { status: None, limit: 50, cursor: None }
    }
}

/// Runs a subcommand; without one, lists the runs.
///
/// # Errors
/// The run does not exist or is over, or the API is unreachable.
pub async fn run(args: RunsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let run = match args.command.unwrap_or_else(|| RunsCommand::List(ListArgs::default())) {
        RunsCommand::List(args) => return list(&client, &args, context).await,
        RunsCommand::Show { key, limit, cursor } => {
            return show(&client, &key, &page(limit, cursor), context).await;
        }
        RunsCommand::Cancel { key } => {
            client.send(client.request(Method::POST, &format!("{}/cancel", path(&key)))).await?.body
        }
        RunsCommand::End { key, failed, note } => {
            let status = if failed { "failed" } else { "finished" };
            let request = client.request(Method::POST, &format!("{}/end", path(&key)));
            client.send(request.json(&json!({ "status": status, "note": note }))).await?.body
        }
    };
    if context.json {
        output::json(&run);
    } else {
        output::line(summary(&run));
    }
    Ok(Exit::Done)
}

/// The path of a run.
pub(super) fn path(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    let escaped = key.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    format!("/v1/runs/{}", escaped.collect::<String>())
}

/// One line: status, calls and costs.
pub(super) fn summary(run: &Value) -> String {
    format!(
        "run {}: {}, {} model calls for {} USD, {} saved worth {} USD",
        text(&run["key"]),
        text(&run["status"]),
        run["calls"],
        run["usage"]["cost_usd"],
        run["usage"]["saved_calls"],
        run["usage"]["saved_usd"],
    )
}

fn page(limit: u32, cursor: Option<String>) -> Vec<(&'static str, String)> {
    let cursor = cursor.map(|cursor| ("cursor", cursor));
    [("limit", limit.to_string())].into_iter().chain(cursor).collect()
}

async fn list(client: &Client, args: &ListArgs, context: &Context) -> anyhow::Result<Exit> {
    let mut request = client.request(Method::GET, "/v1/runs").query(&page(args.limit, args.cursor.clone()));
    if let Some(status) = &args.status {
        request = request.query(&[("status", status)]);
    }
    let page = client.send(request).await?.body;
    if context.json {
        output::json(&page);
        return Ok(Exit::Done);
    }
    let mut table = output::table(["KEY", "STATUS", "ATTEMPTS", "CALLS", "CREATED", "DEADLINE", "NOTE"]);
    for run in page["runs"].as_array().into_iter().flatten() {
        table.add_row([
            text(&run["key"]).into(),
            output::state(&text(&run["status"])),
            run["attempts"].to_string().into(),
            run["calls"].to_string().into(),
            time(&run["created_at"]).into(),
            time(&run["deadline_at"]).into(),
            text(&run["note"]).into(),
        ]);
    }
    output::line(table.trim_fmt());
    more(&page);
    Ok(Exit::Done)
}

async fn show(client: &Client, key: &str, query: &[(&str, String)], context: &Context) -> anyhow::Result<Exit> {
    let run = client.get(&path(key)).await?;
    let calls = client.send(client.request(Method::GET, &format!("{}/calls", path(key))).query(query)).await?.body;
    if context.json {
        output::json(&json!({ "run": run, "calls": calls["calls"], "next_cursor": calls["next_cursor"] }));
        return Ok(Exit::Done);
    }
    output::line(summary(&run));
    let label = |name: &str, value: String| output::line(format!("  {name:<9} {value}"));
    if let Some(note) = run["note"].as_str() {
        label("note", note.to_owned());
    }
    if run["deadline_at"].is_string() {
        label("deadline", time(&run["deadline_at"]));
    }
    for (name, what) in [("cost_usd", "USD"), ("model_calls", "model calls"), ("tokens", "tokens")] {
        let max = &run["budget"]["max"][name];
        if !max.is_null() {
            label("budget", format!("{} of {max} {what} spent", run["budget"]["spent"][name]));
        }
    }
    let mut table = output::table(["EXECUTION", "STATUS", "STEP", "OCCURRENCE", "MODEL", "USD", "SAVED", "CREATED"]);
    for call in calls["calls"].as_array().into_iter().flatten() {
        table.add_row([
            text(&call["execution_id"]).into(),
            output::state(&text(&call["status"])),
            text(&call["step"]).into(),
            call["occurrence"].to_string().into(),
            text(&call["model"]).into(),
            call["cost_usd"].to_string().into(),
            call["saved"].to_string().into(),
            time(&call["created_at"]).into(),
        ]);
    }
    output::line(table.trim_fmt());
    more(&calls);
    Ok(Exit::Done)
}

fn more(page: &Value) {
    if let Some(cursor) = page["next_cursor"].as_str() {
        output::note(format!("more with --cursor {cursor}"));
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn time(value: &Value) -> String {
    value.as_str().unwrap_or("-").chars().take(19).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_costs_and_savings() {
        let usage = json!({"cost_usd": 0.5, "saved_calls": 2, "saved_usd": 0.25});
        let run = json!({"key": "k", "status": "finished", "calls": 3, "usage": usage});
        assert_eq!(summary(&run), "run k: finished, 3 model calls for 0.5 USD, 2 saved worth 0.25 USD");
    }

    #[test]
    fn path_of_an_odd_key_stays_below_the_runs() {
        assert_eq!(path("report-7.a:b_c"), "/v1/runs/report-7.a:b_c");
        assert_eq!(path("../keys?x"), "/v1/runs/..%2Fkeys%3Fx");
    }
}
