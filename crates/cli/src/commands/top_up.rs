//! `longhaul top-up ID`.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;

use super::submit::Caps;
use crate::{client::Client, exit::UsageError, progress};

/// Raise the budget of an execution and everything it started
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What waits for the budget and now fits goes on. The caps are what the whole tree may spend in all, so giving the same
again changes nothing.

Examples:
  longhaul top-up 019a2c3e-… --max-cost 5.00
  longhaul top-up 019a2c3e-… --max-model-calls 200")]
pub struct TopUpArgs {
    /// Id of any execution of the tree
    id: String,
    #[command(flatten)]
    caps: Caps,
}

/// # Errors
/// The execution does not exist, has no such budget or is over, or the API is unreachable.
pub async fn run(args: TopUpArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let Some(caps) = args.caps.body() else {
        let missing = "give at least one of --max-cost, --max-tokens and --max-model-calls";
        return Err(UsageError(missing.to_owned()).into());
    };
    let request = client.request(Method::POST, &format!("{}/budget", progress::path(&args.id))).json(&caps);
    let answer = client.send(request).await?;
    if context.json {
        output::json(&answer.body);
        return Ok(Exit::Done);
    }
    let budget = &answer.body;
    for (name, label) in [("cost_usd", "cost, USD"), ("tokens", "tokens"), ("model_calls", "model calls")] {
        let [spent, reserved, max] = ["spent", "reserved", "max"].map(|part| &budget[part][name]);
        let max = if max.is_null() { "not limited".to_owned() } else { format!("at most {max}") };
        output::line(format!("{label}: spent {spent}, reserved {reserved}, {max}"));
    }
    let over = &budget["over_limit"];
    if over["model_calls"].as_u64().is_some_and(|calls| calls > 0) {
        output::line(format!("charged above the limits that were sent, in {} calls: {}", over["model_calls"], over));
    }
    output::line(format!("waiting: {}", budget["waiting"]));
    Ok(Exit::Done)
}
