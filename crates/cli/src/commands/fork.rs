//! `longhaul fork ID`.

use longhaul_command::{Context, Exit};
use reqwest::Method;
use serde_json::{Value, json};

use super::submit::finish;
use crate::{client::Client, json_input::json_input, progress};

/// Start an execution that shares another's record up to a step and continues differently
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What was recorded before the step costs nothing again. The steps are in `longhaul get ID --json` under links.steps.

Examples:
  longhaul fork 019a2c3e-… --from-step 7 --model large
  longhaul fork 019a2c3e-… --from-step 1 --prompt 'You are brief. {{ input.topic }}'
  longhaul fork 019a2c3e-… --from-step 4 --agent second-opinion --wait
  longhaul compare 019a2c3e-… 019a2c41-…")]
pub struct ForkArgs {
    /// Id of the execution to fork; it may be in any state
    id: String,
    /// First step that is not shared
    #[arg(long, value_name = "N")]
    from_step: u32,
    /// Continue with this agent in its newest version: its prompt, model and tools
    #[arg(long, value_name = "KEY")]
    agent: Option<String>,
    /// Replace the system prompt
    #[arg(long)]
    prompt: Option<String>,
    /// Replace the model: a name, or a JSON object of the fields to change
    #[arg(long, value_name = "NAME|JSON")]
    model: Option<String>,
    /// Replace the input: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// Wait until the execution is over, with live progress
    #[arg(long)]
    wait: bool,
}

/// # Errors
/// The execution does not exist, the step or a change is invalid, or the API is unreachable.
pub async fn run(args: ForkArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let mut body = json!({ "from_step": args.from_step });
    if let Some(agent) = args.agent {
        body["agent"] = json!(agent);
    }
    if let Some(prompt) = args.prompt {
        body["prompt"] = json!(prompt);
    }
    if let Some(model) = args.model {
        body["model"] = serde_json::from_str(&model).ok().filter(Value::is_object).unwrap_or(json!(model));
    }
    if let Some(input) = args.input {
        body["input"] = json_input("--input", &input)?;
    }
    let request = client.request(Method::POST, &format!("{}/fork", progress::path(&args.id))).json(&body);
    let execution = client.send(request).await?.body;
    finish(&client, execution, args.wait, context).await
}
