//! `longhaul questions`: lists and answers questions that executions ask their caller.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use super::approvals::ListArgs;
use crate::{client::Client, json_input::json_input};

/// List questions of executions, and answer them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a subcommand: those that wait. Answers are JSON; a text goes in quotes. One that does not fit the question's \
schema, or comes second or too late, is refused with
exit code 6.

Examples:
  longhaul questions
  longhaul questions show 019a2c3e-…
  longhaul questions answer 019a2c3e-… '\"blue\"'
  longhaul questions answer 019a2c3e-… @answer.json --by Ada")]
pub struct QuestionsArgs {
    #[command(subcommand)]
    command: Option<QuestionsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum QuestionsCommand {
    /// List questions, newest first
    List(ListArgs),
    /// Show a question and the schema of its answer
    Show {
        /// Id of the question
        id: String,
    },
    /// Answer a question
    Answer {
        /// Id of the question
        id: String,
        /// The answer as JSON, @FILE, or - for standard input
        answer: String,
        /// Name of the person who answers
        #[arg(long, value_name = "PERSON")]
        by: Option<String>,
    },
}

/// Runs a subcommand; without one, lists the waiting questions.
///
/// # Errors
/// The question does not exist or is closed, the answer does not match its schema, or the API is unreachable.
pub async fn run(args: QuestionsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    match args.command {
        None => list(&client, &ListArgs::waiting(), context).await?,
        Some(QuestionsCommand::List(args)) => list(&client, &args, context).await?,
        Some(QuestionsCommand::Show { id }) => {
            let question = client.get(&format!("/v1/questions/{id}")).await?;
            if context.json {
                output::json(&question);
            } else {
                output::line(output::pretty(&question));
            }
        }
        Some(QuestionsCommand::Answer { id, answer, by }) => {
            let mut body = json!({"answer": json_input("the answer", &answer)?});
            if let Some(by) = by {
                body["answered_by"] = by.into();
            }
            let request = client.request(Method::POST, &format!("/v1/questions/{id}/answer")).json(&body);
            let answered = client.send(request).await?.body;
            if context.json {
                output::json(&answered);
            } else {
                output::line("answered");
            }
        }
    }
    Ok(Exit::Done)
}

async fn list(client: &Client, args: &ListArgs, context: &Context) -> anyhow::Result<()> {
    let page = client.send(client.request(Method::GET, "/v1/questions").query(&args.query())).await?.body;
    if context.json {
        output::json(&page);
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut table = output::table(["ID", "STATE", "EXECUTION", "AGENT", "EXPIRES", "QUESTION"]);
    for question in page["questions"].as_array().into_iter().flatten() {
        table.add_row([
            text(&question["id"]),
            text(&question["state"]),
            text(&question["execution_id"]),
            text(&question["agent"]),
            text(&question["expires_at"]).chars().take(19).collect(),
            text(&question["question"]).chars().take(80).collect(),
        ]);
    }
    output::line(table.trim_fmt());
    if let Some(cursor) = page["next_cursor"].as_str() {
        output::note(format!("more with --cursor {cursor}"));
    }
    Ok(())
}
