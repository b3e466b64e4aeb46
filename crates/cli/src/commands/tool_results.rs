//! `longhaul tool-results ID`: lists the calls that wait for the caller, and posts their results.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{client::Client, json_input::json_input, progress};

/// List the calls of an execution that its caller runs, or post their results
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without results: the calls that wait, of the execution and of those below it. A result has the call's id and hash, and \
`output` (any JSON) or `error` (a text). If one is
refused, nothing is stored: exit code 6.

Examples:
  longhaul tool-results 019a2c3e-…
  longhaul tool-results 019a2c3e-… '[{\"call_id\": \"call_1\", \"hash\": \"5f…\", \"output\": 42}]'
  longhaul tool-results 019a2c3e-… @results.json")]
pub struct ToolResultsArgs {
    /// Id of the execution
    id: String,
    /// A JSON array of results, @FILE, or - for standard input
    results: Option<String>,
}

/// # Errors
/// The execution does not exist, a result is refused, or the API is unreachable.
pub async fn run(args: ToolResultsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let path = progress::path(&args.id);
    let answer = match args.results {
        None => client.get(&path).await?,
        Some(results) => {
            let body = json!({ "results": json_input("the results", &results)? });
            client.send(client.request(Method::POST, &format!("{path}/tool-results")).json(&body)).await?.body
        }
    };
    // Absent from the record of an execution of which no call waits.
    let none = json!([]);
    let pending = answer.get("requires_action").unwrap_or(&none);
    if context.json {
        output::json(pending);
        return Ok(Exit::Done);
    }
    if let (Some(accepted), Some(repeated)) = (answer["accepted"].as_u64(), answer["repeated"].as_u64()) {
        output::note(format!("{accepted} results accepted, {repeated} accepted before"));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut table = output::table(["CALL", "TOOL", "EXECUTION", "EXPIRES", "HASH", "ARGUMENTS"]);
    for call in pending.as_array().into_iter().flatten() {
        table.add_row([
            text(&call["call_id"]),
            text(&call["name"]),
            text(&call["execution_id"]),
            text(&call["expires_at"]).chars().take(19).collect(),
            text(&call["hash"]),
            call["arguments"].to_string().chars().take(80).collect(),
        ]);
    }
    output::line(table.trim_fmt());
    Ok(Exit::Done)
}
