//! `longhaul chat AGENT`: talks to an agent in a session.

use std::io::Write as _;

use longhaul_command::{Context, Exit, output};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::client::{Client, Event};

/// Talk to an agent; each line is a message
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a message, reads one per line from standard input until it ends. The session's id is printed at the end; name
it to go on later, from any machine. Approvals are decided with `longhaul approvals`, meanwhile the chat waits.

Examples:
  longhaul chat support 'Where is order 17?'
  longhaul chat support --session sess_019a2c3e5b7f7d10a1b2c3d4e5f60718")]
pub struct ChatArgs {
    /// Key of the agent
    agent: String,
    /// Message; without one, standard input
    message: Option<String>,
    /// Session to continue
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

/// # Errors
/// The agent or session does not exist, or the API is unreachable.
pub async fn run(args: ChatArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let mut session = args.session;
    let mut exit = Exit::Done;
    match args.message {
        Some(message) => exit = say(&client, &args.agent, &message, &mut session, context).await?,
        None => {
            let mut lines = BufReader::new(tokio::io::stdin()).lines();
            while let Some(message) = lines.next_line().await? {
                if !message.trim().is_empty() {
                    exit = say(&client, &args.agent, &message, &mut session, context).await?;
                }
            }
        }
    }
    if let Some(session) = session {
        output::note(format!("session {session}"));
    }
    Ok(exit)
}

/// Sends one message and prints what the agent does until its turn ends.
async fn say(
    client: &Client,
    agent: &str,
    message: &str,
    session: &mut Option<String>,
    context: &Context,
) -> anyhow::Result<Exit> {
    let body = json!({ "message": message, "session_id": session.as_deref() });
    let mut events = client.chat(agent, &body).await?;
    while let Some(event) = events.next().await {
        if let Some(id) = event.body["session_id"].as_str() {
            *session = Some(id.to_owned());
        }
        if context.json {
            output::json_line(&json!({ "event": event.kind, "data": event.body }));
        } else {
            show(&event)?;
        }
        if event.kind == "done" {
            let is_answered = event.body["stop_reason"] == "end_turn";
            return Ok(if is_answered { Exit::Done } else { Exit::ExecutionFailed });
        }
    }
    anyhow::bail!("the stream ended before the agent's turn; the message is kept, and its answer is in the session")
}

fn show(event: &Event) -> anyhow::Result<()> {
    let text = |name: &str| event.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    match event.kind.as_str() {
        "delta" => {
            let mut out = std::io::stdout().lock();
            out.write_all(text("text").as_bytes())?;
            out.flush()?;
        }
        "tool_use" => output::note(format!("  {} {}", text("tool"), event.body["input"])),
        "tool_result" => output::note(format!("  {} → {}", text("tool"), text("output"))),
        "approval_request" => output::note("  waits for a decision: longhaul approvals"),
        "retry" => output::note("  retries"),
        "error" => output::note(format!("  failed: {} ({})", text("message"), text("code"))),
        "done" => output::line(""),
        _ => {}
    }
    Ok(())
}
