//! `longhaul approvals`: lists tool calls that wait for an approval, and decides on them.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::{client::Client, json_input::json_input};

/// List tool calls that wait for an approval, and decide on them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a subcommand: those that wait. A decision needs a key with the scope approvals:decide, other than the one that \
submitted
the execution. One that comes second, too late or after the execution's end is refused with exit code 6.

Examples:
  longhaul approvals
  longhaul approvals show 019a2c3e-…
  longhaul approvals approve 019a2c3e-… --hash 5f2a… --by Ada
  longhaul approvals edit 019a2c3e-… --arguments '{\"amount\": 10}'
  longhaul approvals reject 019a2c3e-… --reason 'too much'")]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ApprovalsCommand {
    /// List approvals, newest first
    List(ListArgs),
    /// Show the exact call and its hash
    Show {
        /// Id of the approval
        id: String,
    },
    /// Approve the call as it is
    Approve(DecideArgs),
    /// Approve the call with other arguments
    Edit {
        #[command(flatten)]
        decide: DecideArgs,
        /// The arguments as JSON, @FILE, or - for standard input
        #[arg(long, value_name = "JSON")]
        arguments: String,
    },
    /// Run another call instead; the agent's approval policy applies to that call again
    Replace {
        #[command(flatten)]
        decide: DecideArgs,
        /// Name of the tool to run instead
        #[arg(long)]
        tool: String,
        /// Its arguments as JSON, @FILE, or - for standard input
        #[arg(long, value_name = "JSON")]
        arguments: String,
    },
    /// Reject the call; the model is told the reason
    Reject(DecideArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// List requests in this state; `all` for every state
    #[arg(long, default_value = "waiting")]
    pub(super) state: String,
    /// List requests of this execution only
    #[arg(long, value_name = "ID")]
    pub(super) execution: Option<String>,
    /// List requests of this agent only, by key
    #[arg(long)]
    pub(super) agent: Option<String>,
    /// Requests per page, 1 to 200
    #[arg(long, default_value_t = 50)]
    pub(super) limit: u32,
    /// Page to continue with: `next_cursor` of the previous page
    #[arg(long)]
    pub(super) cursor: Option<String>,
}

#[derive(Debug, clap::Args)]
struct DecideArgs {
    /// Id of the approval
    id: String,
    /// Hash of the call you decide on; if absent, the call is printed and its current hash used
    #[arg(long)]
    hash: Option<String>,
    /// Reason for the decision
    #[arg(long)]
    reason: Option<String>,
    /// Name of the person who decides
    #[arg(long, value_name = "PERSON")]
    by: Option<String>,
}

impl ListArgs {
    /// The filter of a command without a subcommand.
    pub(super) fn waiting() -> Self {
        Self { state: "waiting".to_owned(), execution: None, agent: None, limit: 50, cursor: None }
    }

    pub(super) fn query(&self) -> Vec<(&'static str, String)> {
        let state = (self.state != "all").then(|| self.state.clone());
        let named = [("state", state), ("execution", self.execution.clone()), ("agent", self.agent.clone())];
        let named = named.into_iter().chain([("cursor", self.cursor.clone())]);
        let named = named.filter_map(|(name, value)| Some((name, value?)));
        named.chain([("limit", self.limit.to_string())]).collect()
    }
}

/// Runs a subcommand; without one, lists the waiting approvals.
///
/// # Errors
/// The approval does not exist or is already decided, the key lacks the scope, or the API is unreachable.
pub async fn run(args: ApprovalsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    match args.command {
        None => list(&client, &ListArgs::waiting(), context).await,
        Some(ApprovalsCommand::List(args)) => list(&client, &args, context).await,
        Some(ApprovalsCommand::Show { id }) => {
            print(&client.get(&path(&id)).await?, context);
            Ok(Exit::Done)
        }
        Some(ApprovalsCommand::Approve(args)) => decide(&client, &args, json!({"decision": "approve"}), context).await,
        Some(ApprovalsCommand::Reject(args)) => decide(&client, &args, json!({"decision": "reject"}), context).await,
        Some(ApprovalsCommand::Edit { decide: args, arguments }) => {
            let arguments = json_input("--arguments", &arguments)?;
            decide(&client, &args, json!({"decision": "edit", "arguments": arguments}), context).await
        }
        Some(ApprovalsCommand::Replace { decide: args, tool, arguments }) => {
            let arguments = json_input("--arguments", &arguments)?;
            decide(&client, &args, json!({"decision": "replace", "tool": tool, "arguments": arguments}), context).await
        }
    }
}

fn path(id: &str) -> String {
    format!("/v1/approvals/{id}")
}

async fn list(client: &Client, args: &ListArgs, context: &Context) -> anyhow::Result<Exit> {
    let page = client.send(client.request(Method::GET, "/v1/approvals").query(&args.query())).await?.body;
    if context.json {
        output::json(&page);
        return Ok(Exit::Done);
    }
    let mut table = output::table(["ID", "STATE", "EXECUTION", "AGENT", "TOOL", "EXPIRES", "ARGUMENTS"]);
    for approval in page["approvals"].as_array().into_iter().flatten() {
        table.add_row([
            text(&approval["id"]),
            text(&approval["state"]),
            text(&approval["execution_id"]),
            text(&approval["agent"]),
            text(&approval["tool"]),
            text(&approval["expires_at"]).chars().take(19).collect(),
            text(&approval["preview"]).chars().take(60).collect(),
        ]);
    }
    output::line(table.trim_fmt());
    if let Some(cursor) = page["next_cursor"].as_str() {
        output::note(format!("more with --cursor {cursor}"));
    }
    Ok(Exit::Done)
}

async fn decide(client: &Client, args: &DecideArgs, mut body: Value, context: &Context) -> anyhow::Result<Exit> {
    let hash = match &args.hash {
        Some(hash) => hash.clone(),
        None => {
            let approval = client.get(&path(&args.id)).await?;
            output::note(format!("{} {}", text(&approval["tool"]), approval["arguments"]));
            text(&approval["hash"])
        }
    };
    let fields = [("hash", Some(hash)), ("reason", args.reason.clone()), ("decided_by", args.by.clone())];
    let fields: Map<String, Value> =
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
    body.as_object_mut().into_iter().for_each(|body| body.extend(fields.clone()));
    let request = client.request(Method::POST, &format!("{}/decision", path(&args.id))).json(&body);
    let decided = client.send(request).await?.body;
    if context.json {
        output::json(&decided);
    } else {
        output::line(text(&decided["state"]));
    }
    Ok(Exit::Done)
}

fn print(approval: &Value, context: &Context) {
    if context.json {
        return output::json(approval);
    }
    let row = |name: &str, value: String| output::line(format!("{name:<11} {value}"));
    for name in [
        "id",
        "state",
        "execution_id",
        "agent",
        "tool",
        "policy",
        "hash",
        "requested_at",
        "expires_at",
        "decided_at",
        "reason",
    ] {
        if let Some(value) = approval[name].as_str() {
            row(name, value.to_owned());
        }
    }
    let by = &approval["decided_by"];
    if by.is_object() {
        let person = by["person"].as_str().map_or_else(String::new, |person| format!(" for {person}"));
        row("decided_by", format!("{}{person}", text(&by["key_name"])));
    }
    row("arguments", output::pretty(&approval["arguments"]));
    if let Some(arguments) = approval.get("decided_arguments") {
        row(
            "runs",
            format!("{} {}", text(approval.get("decided_tool").unwrap_or(&Value::Null)), output::pretty(arguments)),
        );
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
