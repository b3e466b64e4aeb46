//! `longhaul usage`: what a span of time cost, and what failed in it.

use chrono::{DateTime, SecondsFormat, Utc};
use longhaul_command::{Context, Exit, output, times};
use reqwest::Method;
use serde_json::Value;

use crate::client::Client;

/// Sum the usage and outcomes of the executions of a span of time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An execution counts at the time of its submit, with all that it has spent so far. A span of more than 50,000
executions or 200,000 calls is summed from its newer end; the output says from when on.

Examples:
  longhaul usage
  longhaul usage --since 2026-11-01T00:00:00Z --until 2026-11-02T00:00:00Z
  longhaul usage --org-id acme                  needs a key with the scope admin
  longhaul usage --all-tenants --json | jq '.totals.cost_usd'")]
pub struct UsageArgs {
    /// Submitted at this time or later, such as 2026-12-01 or 1d [default: 24 hours before --until]
    #[arg(long, value_name = "TIME", value_parser = times::past)]
    since: Option<DateTime<Utc>>,
    /// Submitted before this time, such as 2026-12-01 or 1d [default: now]
    #[arg(long, value_name = "TIME", value_parser = times::past)]
    until: Option<DateTime<Utc>>,
    /// Of this organisation
    #[arg(long, value_name = "ORG", conflicts_with = "all_tenants")]
    org_id: Option<String>,
    /// Of this group of the organisation
    #[arg(long, value_name = "GROUP", requires = "org_id")]
    group_id: Option<String>,
    /// Of all tenants
    #[arg(long)]
    all_tenants: bool,
}

impl UsageArgs {
    fn query(&self) -> Vec<(&'static str, String)> {
        let time = |at: Option<DateTime<Utc>>| at.map(|at| at.to_rfc3339_opts(SecondsFormat::Micros, true));
        let given = [
            ("since", time(self.since)),
            ("until", time(self.until)),
            ("org_id", self.org_id.clone()),
            ("group_id", self.group_id.clone()),
            ("all_tenants", self.all_tenants.then(|| "true".to_owned())),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// # Errors
/// The span is invalid, the key lacks a scope, or the API is unreachable.
pub async fn run(args: UsageArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let usage = client.send(client.request(Method::GET, "/v1/usage").query(&args.query())).await?.body;
    if context.json {
        output::json(&usage);
        return Ok(Exit::Done);
    }
    if usage["is_cut"] == true {
        output::note(format!("complete from {} on only: choose a shorter span", text(&usage["covered_since"])));
    }
    show_totals(&usage);
    show_spend(&usage);
    show_agents(&usage);
    Ok(Exit::Done)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn show_totals(usage: &Value) {
    let total = &usage["totals"];
    output::line(format!("submitted from {} to {}:", text(&usage["covered_since"]), text(&usage["until"])));
    output::line(format!(
        "  {} executions, {} finished, {} failed",
        total["executions"], total["finished"], total["failed"]
    ));
    output::line(format!(
        "  {} model calls, {} input tokens ({} cached), {} output tokens, {} USD, {} calls of unknown cost",
        total["calls"],
        total["input_tokens"],
        total["cached_tokens"],
        total["output_tokens"],
        total["cost_usd"],
        total["uncosted_calls"],
    ));
}

fn show_spend(usage: &Value) {
    let rows = usage["spend"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return;
    }
    let mut table = output::table(["TENANT", "AGENT", "MODEL", "CALLS", "INPUT", "CACHED", "OUTPUT", "USD", "UNKNOWN"]);
    for row in rows {
        let group = row["group_id"].as_str().map(|group| format!("/{group}")).unwrap_or_default();
        let numbers = ["calls", "input_tokens", "cached_tokens", "output_tokens", "cost_usd", "uncosted_calls"]
            .map(|name| row[name].to_string());
        table.add_row(
            [text(&row["org_id"]) + &group, text(&row["agent"]), text(&row["model"])].into_iter().chain(numbers),
        );
    }
    output::line(table.trim_fmt());
}

fn show_agents(usage: &Value) {
    let rows = usage["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return;
    }
    let mut table = output::table(["AGENT", "EXECUTIONS", "FINISHED", "FAILED"]);
    for row in rows {
        table.add_row([
            text(&row["agent"]),
            row["executions"].to_string(),
            row["finished"].to_string(),
            row["failed"].to_string(),
        ]);
    }
    output::line(table.trim_fmt());
    let failures =
        rows.iter().flat_map(|row| row["failures"].as_array().into_iter().flatten().map(move |of| (row, of)));
    for (row, of) in failures {
        let (agent, code, newest) = (text(&row["agent"]), text(&of["code"]), text(&of["newest_id"]));
        output::line(format!(
            "{} of {agent} failed with {code}; the newest, {newest}: {}",
            of["executions"],
            text(&of["summary"])
        ));
    }
}
