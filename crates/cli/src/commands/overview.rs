//! `longhaul overview`.

use longhaul_command::{Context, Exit, output};
use serde_json::Value;

use crate::client::Client;

/// Count the executions by state, and sum up the newest 2,000
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  longhaul overview
  longhaul overview --all-tenants      needs a key with the scope admin")]
pub struct OverviewArgs {
    /// Of all tenants
    #[arg(long)]
    all_tenants: bool,
}

/// # Errors
/// The key lacks a scope, or the API is unreachable.
pub async fn run(args: OverviewArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let overview = client.get(&format!("/v1/overview?all_tenants={}", args.all_tenants)).await?;
    if context.json {
        output::json(&overview);
    } else {
        lines(&overview).iter().for_each(output::line);
    }
    Ok(Exit::Done)
}

fn each<'a>(of: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    of[list].as_array().into_iter().flatten()
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or("-")
}

fn lines(overview: &Value) -> Vec<String> {
    let counts = overview["counts"].as_object().into_iter().flatten();
    let counts: Vec<String> = counts.map(|(status, count)| format!("{count} {status}")).collect();
    let mut lines = vec![counts.join(", ")];
    for of in each(overview, "waiting") {
        lines.push(format!("  {} wait in {} for {}", of["executions"], text(of, "queue"), text(of, "wait_reason")));
    }
    let recent = &overview["recent"];
    lines.push(format!("of the newest {}, submitted since {}:", recent["executions"], text(recent, "since")));
    for (field, label) in [("start_seconds", "to start"), ("total_seconds", "to end")] {
        if let Some(p95) = recent[field]["p95"].as_f64() {
            lines.push(format!("  95 % took at most {p95:.3} s {label}"));
        }
    }
    for of in each(recent, "failures") {
        lines.push(format!("  {} of {} failed with {}", of["executions"], text(of, "definition"), text(of, "code")));
    }
    for of in each(recent, "spend") {
        let tokens = of["input_tokens"].as_i64().unwrap_or_default() + of["output_tokens"].as_i64().unwrap_or_default();
        lines.push(format!(
            "  {} called {} {} times: {tokens} tokens, {} USD",
            text(of, "agent"),
            text(of, "model"),
            of["calls"],
            of["cost_usd"],
        ));
    }
    lines
}
