//! `longhaul steps ID`: the journal of an execution.

use longhaul_command::{Context, Exit, output};
use serde_json::{Value, json};

use crate::{client::Client, progress};

/// Characters of a step's preview.
const PREVIEW: usize = 60;

/// List the recorded steps of an execution: model calls, tool calls, verdicts
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The number of a step is what `longhaul fork --from-step` takes.

Examples:
  longhaul steps 019a2c3e-…
  longhaul steps 019a2c3e-… --body --json | jq '.steps[].messages'")]
pub struct StepsArgs {
    /// Id of the execution
    id: String,
    /// With bodies and messages; for --json
    #[arg(long)]
    body: bool,
}

/// # Errors
/// The execution does not exist, or the API is unreachable.
pub async fn run(args: StepsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let path = format!("{}/steps", progress::path(&args.id));
    let query: &[(&str, &str)] = if args.body { &[("include", "body")] } else { &[] };
    let steps = client.all(&path, query, "steps").await?;
    if context.json {
        output::json(&json!({ "steps": steps }));
        return Ok(Exit::Done);
    }
    let mut table = output::table(["STEP", "ATTEMPT", "KIND", "STATE", "NAME", "TOKENS", "FAILURE", "PREVIEW"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for step in &steps {
        let tokens = match (&step["input_tokens"], &step["output_tokens"]) {
            (Value::Null, Value::Null) => String::new(),
            (sent, written) => format!("{sent}+{written}"),
        };
        let preview = text(&step["preview"]).replace(['\n', '\r'], " ");
        table.add_row([
            step["seq"].to_string(),
            step["attempt"].to_string(),
            text(&step["kind"]),
            text(&step["state"]),
            text(&step["name"]),
            tokens,
            text(&step["failure_code"]),
            preview.chars().take(PREVIEW).collect(),
        ]);
    }
    output::line(table.trim_fmt());
    Ok(Exit::Done)
}
