//! `longhaul quarantine`: lists and releases executions that killed their workers.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;

/// List executions that killed their workers, show the details of one, and release it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
They are retried by themselves when a worker of a new build starts: one of each definition version first, the rest \
when that one
ends without killing its worker. A release by hand does the same under the build that runs.

Examples:
  longhaul quarantine
  longhaul quarantine show 019a2c3e-…
  longhaul quarantine release 019a2c3e-…          this one is tried, the rest of its version follows
  longhaul quarantine release 019a2c3e-… --all    all of its version, without trying one first
  longhaul cancel 019a2c3e-…                      it is not released any more")]
pub struct QuarantineArgs {
    #[command(subcommand)]
    command: Option<QuarantineCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum QuarantineCommand {
    /// List quarantined executions (default)
    List {
        /// Include released, withdrawn and expired executions
        #[arg(long)]
        all: bool,
        /// List all tenants; needs the scope admin
        #[arg(long)]
        all_tenants: bool,
    },
    /// Show the details of one execution: its worker deaths, its last step, the reason for its wait
    Show {
        /// Id of the execution
        id: String,
    },
    /// Retry one execution without waiting for a new build of the workers
    Release {
        /// Id of the execution
        id: String,
        /// Release all executions quarantined with it, in batches
        #[arg(long)]
        all: bool,
    },
}

/// Runs a subcommand; without one, lists the quarantined executions.
///
/// # Errors
/// The execution does not exist or cannot be released, or the API is unreachable.
pub async fn run(args: QuarantineArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    match args.command.unwrap_or(QuarantineCommand::List { all: false, all_tenants: false }) {
        QuarantineCommand::List { all, all_tenants } => list(&client, context, all, all_tenants).await,
        QuarantineCommand::Show { id } => {
            let found = client.get(&path(&id)).await?;
            if context.json {
                output::json(&found);
            } else {
                lines(&found).into_iter().for_each(output::line);
            }
            Ok(Exit::Done)
        }
        QuarantineCommand::Release { id, all } => {
            let request = client.request(Method::POST, &format!("{}/release", path(&id)));
            let answer = client.send(request.json(&json!({ "all": all }))).await?.body;
            if context.json {
                output::json(&answer);
            } else if let Some(retry) = answer["released_as"].as_str() {
                output::line(retry);
                output::note("tried alone; the rest of its version follows when it ends without killing its worker");
            } else {
                output::note("all of its version are released, a portion at a time");
            }
            Ok(Exit::Done)
        }
    }
}

fn path(id: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    format!("/v1/quarantine/{}", id.chars().filter(is_plain).collect::<String>())
}

async fn list(client: &Client, context: &Context, all: bool, all_tenants: bool) -> anyhow::Result<Exit> {
    let mut query = vec![("all_tenants", if all_tenants { "true" } else { "false" })];
    if all {
        query.push(("state", "all"));
    }
    let found = client.all("/v1/quarantine", &query, "quarantined").await?;
    if context.json {
        output::json(&json!({ "quarantined": found }));
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        output::line("nothing is in quarantine");
    }
    for one in found {
        output::line(format!(
            "{}  {:<11}  {:<24}  {} deaths, the last {}",
            text(&one, "execution_id"),
            text(&one, "state"),
            versioned(&one),
            one["deaths"].as_array().map_or(0, Vec::len),
            text(&one, "phase"),
        ));
    }
    Ok(Exit::Done)
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or("-")
}

fn versioned(of: &Value) -> String {
    match of["definition_version"].as_i64() {
        Some(version) => format!("{}@{version}", text(of, "definition")),
        None => text(of, "definition").to_owned(),
    }
}

fn mebibytes(of: &Value) -> String {
    of["memory_bytes"].as_i64().map_or_else(|| "unknown".into(), |bytes| format!("{} MiB", bytes / 1_048_576))
}

/// Formats the details of one execution for a terminal.
fn lines(found: &Value) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", text(found, "execution_id"), text(found, "state"))];
    let mut say = |label: &str, what: String| lines.push(format!("  {label:<12} {what}"));
    say("of", format!("{}, agent {}, queue {}", versioned(found), text(found, "agent"), text(found, "queue")));
    say("died", text(found, "phase").into());
    let step = &found["last_step"];
    if step.is_object() {
        let name = step["name"].as_str().map_or_else(String::new, |name| format!(" of {name}"));
        say("last step", format!("{} {}{name}, {}", text(step, "kind"), step["seq"], text(step, "state")));
    }
    say("memory", mebibytes(found));
    for death in found["deaths"].as_array().into_iter().flatten() {
        say(
            "death",
            format!(
                "{}, worker {} on {}, build {}, memory {}",
                text(death, "at"),
                text(death, "worker_id"),
                text(death, "host"),
                text(death, "build"),
                mebibytes(death),
            ),
        );
    }
    if let Some(retry) = found["released_as"].as_str() {
        say("released", format!("{}, as {retry}", text(found, "released_at")));
        return lines;
    }
    let group = &found["group"];
    match group["state"].as_str() {
        Some("canary") => say("waits for", format!("the end of {}, which is tried", text(group, "canary"))),
        Some("releasing") => say("waits for", "its turn: those of its version are released".into()),
        Some(_) => {
            let died = group["died_builds"].as_array().into_iter().flatten().filter_map(Value::as_str);
            say("waits for", format!("a worker of a build other than {}", died.collect::<Vec<_>>().join(", ")));
        }
        None => {}
    }
    if group["held_since"].is_string() {
        say("meanwhile", format!("new executions are held back, since {}", text(group, "held_since")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarantined_execution_is_shown_line_by_line() {
        let found = json!({
            "execution_id": "019a", "state": "quarantined", "definition": "invoice", "definition_version": 3,
            "agent": "clerk",
            "queue": "default", "phase": "calling render_pdf", "memory_bytes": 104_857_600,
            "last_step": {"seq": 2, "kind": "turn", "state": "live", "name": "m"},
            "deaths": [{"at": "then", "worker_id": "w", "host": "h", "build": "1.0", "memory_bytes": null}],
            "released_as": null, "group": {"state": "shut", "died_builds": ["1.0"], "held_since": null},
        });
        assert_eq!(
            lines(&found),
            [
                "019a: quarantined",
                "  of           invoice@3, agent clerk, queue default",
                "  died         calling render_pdf",
                "  last step    turn 2 of m, live",
                "  memory       100 MiB",
                "  death        then, worker w on h, build 1.0, memory unknown",
                "  waits for    a worker of a build other than 1.0",
            ]
        );
    }
}
