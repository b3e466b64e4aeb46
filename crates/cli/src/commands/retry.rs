//! `longhaul retry`: new executions that continue where FAILED ones ended.

use longhaul_command::{Context, Exit, output};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::filters::{Filters, preview};
use crate::{client::Client, client::ClientError, progress};

/// Retry FAILED executions as new executions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What the model and the tools answered before the failure is kept, unless --from-scratch. Prints the new execution's id.
With filters instead of an id: shows which have failed and would be retried; with --yes it retries each of them once,
also if the command is repeated.

Examples:
  longhaul retry 019a2c3e-… --wait
  longhaul retry 019a2c3e-… --latest --from-scratch
  longhaul retry --failure-code tool_unreachable --created-after 2026-11-20T00:00:00Z
  longhaul retry --failure-code tool_unreachable --created-after 2026-11-20T00:00:00Z --yes")]
pub struct RetryArgs {
    /// Id of the failed execution
    #[arg(required_unless_present = "Filters", conflicts_with = "Filters")]
    id: Option<String>,
    #[command(flatten)]
    filters: Option<Filters>,
    /// Retry the executions that the filters choose
    #[arg(long, requires = "Filters")]
    yes: bool,
    /// Repeat all model and tool calls
    #[arg(long)]
    from_scratch: bool,
    /// Use the newest version of its definition and agent, not the one it ran
    #[arg(long)]
    latest: bool,
    /// Wait until the execution is over, with live progress
    #[arg(long, conflicts_with = "Filters")]
    wait: bool,
}

impl RetryArgs {
    fn request(&self, client: &Client, id: &str) -> RequestBuilder {
        let mut request = client.request(Method::POST, &format!("{}/retry", progress::path(id)));
        if self.latest {
            request = request.query(&[("version", "latest")]);
        }
        request.json(&json!({"from_scratch": self.from_scratch}))
    }
}

/// # Errors
/// The execution does not exist or did not fail, or the API is unreachable.
pub async fn run(args: RetryArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    if let Some(id) = &args.id {
        let answer = client.send(args.request(&client, id)).await?;
        return super::submit::finish(&client, answer.body, args.wait, context).await;
    }
    let has_failed = |one: &Value| one["status"] == "FAILED";
    let chosen = match &args.filters {
        Some(filters) => filters.choose(&client, has_failed).await?,
        None => Vec::new(),
    };
    if !args.yes {
        preview("retried", &chosen);
        return Ok(Exit::Done);
    }
    let (mut started, mut refused) = (Vec::new(), 0);
    for execution in &chosen {
        let id = execution["id"].as_str().unwrap_or_default();
        // So that a repeated command starts none twice.
        let request = args.request(&client, id).header("Idempotency-Key", format!("retry of {id}"));
        match client.send(request).await {
            Ok(answer) => started.push(answer.body["id"].clone()),
            Err(ClientError::Problem(problem)) if problem.is_conflict() => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    if context.json {
        output::json(&json!({ "started": started, "refused": refused }));
    } else {
        started.iter().filter_map(Value::as_str).for_each(output::line);
        output::note(format!("{} executions are retried; {refused} were refused", started.len()));
    }
    Ok(Exit::Done)
}
