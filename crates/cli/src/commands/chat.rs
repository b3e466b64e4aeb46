//! `longhaul chat AGENT`: talks to an agent in a session.

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use longhaul_command::{Context, Exit, output};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::files::upload;
use crate::{
    client::{Client, Event},
    suggest::{self, Kind},
    turn_text::{TextChange, TurnText},
};

/// Talk to an agent; each line is a message
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a message, reads one per line from standard input until it ends. The session's id is printed at the end; name
it to go on later, from any machine. Approvals are decided with `longhaul approvals`, meanwhile the chat waits. A line
`/attach PATH` adds a file to the next message: PNG, JPEG, WebP, PDF or UTF-8 text. If it cannot be attached, the chat
ends with an error, unless the lines are typed at a terminal.

Examples:
  longhaul chat support 'Where is order 17?'
  longhaul chat support 'What is wrong here?' --file screenshot.png
  longhaul chat support --session sess_019a2c3e5b7f7d10a1b2c3d4e5f60718")]
pub struct ChatArgs {
    /// Key of the agent
    agent: String,
    /// Message; without one, standard input
    message: Option<String>,
    /// Session to continue
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// File of the first message; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
}

/// Files of the next message.
#[derive(Debug, Default)]
struct Draft {
    files: Vec<String>,
}

impl Draft {
    /// # Errors
    /// The file cannot be read, or the API refuses.
    async fn attach(&mut self, client: &Client, path: &Path, context: &Context) -> anyhow::Result<()> {
        anyhow::ensure!(!path.as_os_str().is_empty(), "a file is attached with `/attach PATH`");
        let file = upload(client, path, None).await?;
        let id = file["file_id"].as_str().context("the API answered without a `file_id`")?;
        if !context.json {
            output::note(format!("  attached {} as {id}", path.display()));
        }
        self.files.push(id.to_owned());
        Ok(())
    }

    /// The message as the API takes it: a text, or files and a text. The next message begins without files.
    fn message(&mut self, text: &str) -> Value {
        if self.files.is_empty() {
            return json!(text);
        }
        let files = self.files.drain(..).map(|id| json!({ "type": "file", "file_id": id }));
        files.chain([json!({ "type": "text", "text": text })]).collect()
    }
}

/// # Errors
/// The agent or session does not exist, a file cannot be attached, or the API is unreachable.
pub async fn run(args: ChatArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let mut session = args.session;
    let mut exit = Exit::Done;
    let mut draft = Draft::default();
    for path in &args.files {
        draft.attach(&client, path, context).await?;
    }
    match args.message {
        Some(text) => exit = say(&client, &args.agent, draft.message(&text), &mut session, context).await?,
        None => {
            let is_terminal = std::io::stdin().is_terminal();
            let mut lines = BufReader::new(tokio::io::stdin()).lines();
            while let Some(line) = lines.next_line().await? {
                if let Some(path) = attached(&line) {
                    match draft.attach(&client, path, context).await {
                        Ok(()) => {}
                        // The person can correct the path. A script cannot, and would ask without the file.
                        Err(error) if is_terminal => output::note(format!("  not attached: {error:#}")),
                        Err(error) => return Err(error),
                    }
                } else if !line.trim().is_empty() {
                    exit = say(&client, &args.agent, draft.message(&line), &mut session, context).await?;
                }
            }
        }
    }
    match draft.files.len() {
        0 => {}
        1 => output::note("1 attached file was not sent: no message followed"),
        count => output::note(format!("{count} attached files were not sent: no message followed")),
    }
    if let Some(session) = session {
        output::note(format!("session {session}"));
    }
    Ok(exit)
}

/// The path of a line `/attach PATH`.
fn attached(line: &str) -> Option<&Path> {
    let rest = line.strip_prefix("/attach")?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| Path::new(rest.trim()))
}

/// Sends one message and prints what the agent does until its turn ends.
async fn say(
    client: &Client,
    agent: &str,
    message: Value,
    session: &mut Option<String>,
    context: &Context,
) -> anyhow::Result<Exit> {
    let body = json!({ "message": message, "session_id": session.as_deref() });
    let mut events = match client.chat(agent, &body).await {
        Ok(events) => events,
        Err(error) => return Err(suggest::nearest(client, Kind::Agent, agent, error).await.into()),
    };
    let mut printer = Printer { text: TurnText::default(), is_live: std::io::stdout().is_terminal() };
    while let Some(event) = events.next().await {
        if let Some(id) = event.body["session_id"].as_str() {
            *session = Some(id.to_owned());
        }
        if context.json {
            output::json_line(&json!({ "event": event.kind, "data": event.body }));
        } else {
            printer.show(&event);
        }
        if event.kind == "done" {
            let is_answered = event.body["stop_reason"] == "end_turn";
            return Ok(if is_answered { Exit::Done } else { Exit::ExecutionFailed });
        }
    }
    anyhow::bail!("the stream ended before the agent's turn; the message is kept, and its answer is in the session")
}

/// Prints a stream. Text of a turn that may be void by its end is printed at once on a terminal only.
struct Printer {
    text: TurnText,
    is_live: bool,
}

impl Printer {
    fn show(&mut self, event: &Event) {
        let text = |name: &str| event.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        if self.text.is_begun_by(event) {
            self.finish();
        }
        match self.text.take(event) {
            TextChange::Added(more) if self.is_live => output::text(&more),
            TextChange::Instead(whole) if self.is_live => {
                output::line("");
                output::note("  this text is void, and written again:");
                output::text(&whole);
            }
            TextChange::Added(_) | TextChange::Instead(_) | TextChange::None => {}
        }
        if matches!(event.kind.as_str(), "tool_use" | "tool_result" | "approval_request" | "error" | "done") {
            self.finish();
        }
        match event.kind.as_str() {
            "tool_use" => output::note(format!("  {} {}", text("tool"), event.body["input"])),
            "tool_result" => output::note(format!("  {} → {}", text("tool"), text("output"))),
            "approval_request" => output::note("  waits for a decision: longhaul approvals"),
            "retry" => output::note("  retries"),
            "error" => output::note(format!("  failed: {} ({})", text("message"), text("code"))),
            "done" => output::line(""),
            _ => {}
        }
    }

    /// Prints what is held back of the turn.
    fn finish(&mut self) {
        let text = self.text.finish();
        if !self.is_live {
            output::text(&text);
        }
    }
}
