//! `longhaul workers`: the workers of the fleet, what they run, and a drain by hand.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;

/// List the workers of the fleet, show the executions of one, and drain one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs a key with the scope admin. A drained worker claims nothing more, ends its attempts as on SIGTERM, and exits.
A supervisor that restarts it (Kubernetes, systemd, `longhaul dev`) starts a new worker in its place.

Examples:
  longhaul workers
  longhaul workers list --state draining
  longhaul workers show 8a6e0804-2bd0-4672-b79d-d97027f9071a --all-tenants
  longhaul workers drain 8a6e0804-2bd0-4672-b79d-d97027f9071a")]
pub struct WorkersArgs {
    #[command(subcommand)]
    command: Option<WorkersCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum WorkersCommand {
    /// List workers: live ones, and those that died within an hour (default)
    List {
        /// Only those: live, draining, late (its lease has expired) or dead
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
    },
    /// Show one worker and the executions that it holds, or held when it died
    Show {
        /// Id of the worker
        id: String,
        /// Executions of all tenants
        #[arg(long)]
        all_tenants: bool,
    },
    /// Let a worker claim nothing more, end its attempts and exit
    Drain {
        /// Id of the worker
        id: String,
    },
}

/// Runs a subcommand; without one, lists the workers.
///
/// # Errors
/// There is no such worker, the key lacks the scope, or the API is unreachable.
pub async fn run(args: WorkersArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    match args.command.unwrap_or(WorkersCommand::List { state: None }) {
        WorkersCommand::List { state } => {
            let query: Vec<(&str, &str)> = state.iter().map(|state| ("state", state.as_str())).collect();
            list(client.all("/v1/workers", &query, "workers").await?, context);
        }
        WorkersCommand::Show { id, all_tenants } => show(&client, &id, all_tenants, context).await?,
        WorkersCommand::Drain { id } => {
            let worker = client.send(client.request(Method::POST, &format!("{}/drain", path(&id)))).await?.body;
            if context.json {
                output::json(&worker);
            } else {
                output::note(format!("the worker drains; it holds {} executions", worker["held"]));
            }
        }
    }
    Ok(Exit::Done)
}

fn path(id: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    format!("/v1/workers/{}", id.chars().filter(is_plain).collect::<String>())
}

fn list(mut workers: Vec<Value>, context: &Context) {
    if context.json {
        output::json(&json!({ "workers": workers }));
        return;
    }
    if workers.is_empty() {
        output::line("there are no workers");
        return;
    }
    // Their ids are random; people look for the oldest.
    workers.sort_by(|a, b| text(a, "started_at").cmp(text(b, "started_at")));
    let mut table = output::table(["ID", "STATE", "HOST", "BUILD", "HELD", "STARTED", "HEARTBEAT", "QUEUES"]);
    for worker in workers {
        table.add_row([
            text(&worker, "id").into(),
            output::state(text(&worker, "state")),
            format!("{}:{}", text(&worker, "host"), worker["pid"]).into(),
            text(&worker, "build").into(),
            format!("{}/{}", worker["held"], worker["concurrency"]).into(),
            time(&worker, "started_at").into(),
            time(&worker, "last_heartbeat_at").into(),
            queues(&worker).into(),
        ]);
    }
    output::line(table.trim_fmt());
}

async fn show(client: &Client, id: &str, all_tenants: bool, context: &Context) -> anyhow::Result<()> {
    let tenants = ("all_tenants", all_tenants.to_string());
    let (mut executions, mut after) = (Vec::new(), None::<String>);
    let mut worker = loop {
        let mut request = client.request(Method::GET, &path(id)).query(std::slice::from_ref(&tenants));
        if let Some(after) = &after {
            request = request.query(&[("after", after)]);
        }
        let mut page = client.send(request).await?.body;
        if let Value::Array(found) = page["executions"].take() {
            executions.extend(found);
        }
        after = page["next_after"].as_str().map(str::to_owned);
        if after.is_none() {
            break page;
        }
    };
    worker["executions"] = executions.into();
    if context.json {
        output::json(&worker);
        return Ok(());
    }
    let say = |label: &str, what: &str| output::line(format!("  {label:<12} {what}"));
    output::line(format!("{}: {}", text(&worker, "id"), text(&worker, "state")));
    say("host", &format!("{}, process {}", text(&worker, "host"), worker["pid"]));
    say("build", text(&worker, "build"));
    say("queues", &queues(&worker));
    say("holds", &format!("{} of {} at a time", worker["held"], worker["concurrency"]));
    say("started", &time(&worker, "started_at"));
    say("heartbeat", &time(&worker, "last_heartbeat_at"));
    say("lease until", &time(&worker, "lease_expires_at"));
    for (field, label) in [("draining_since", "drains since"), ("dead_at", "dead since")] {
        if worker[field].is_string() {
            say(label, &time(&worker, field));
        }
    }
    for (field, label) in [("executions", "holds"), ("lost", "lost")] {
        for one in worker[field].as_array().into_iter().flatten() {
            say(label, &execution(one));
        }
    }
    Ok(())
}

fn execution(of: &Value) -> String {
    format!(
        "{}  {}/{} of {}, attempt {}, since {}",
        text(of, "execution_id"),
        text(of, "definition"),
        text(of, "agent"),
        text(of, "org_id"),
        of["attempt"],
        time(of, "since"),
    )
}

fn queues(worker: &Value) -> String {
    let names = worker["queues"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join(",")
}

fn time(of: &Value, field: &str) -> String {
    text(of, field).chars().take(19).collect()
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or("-")
}
