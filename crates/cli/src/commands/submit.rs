//! `longhaul submit`: starts an execution and optionally waits for it.

use anyhow::Context as _;
use longhaul_command::{Context, Exit, output, times};
use longhaul_sdk::Usd;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::{client::Client, json_input::json_input, progress, suggest};

/// Submit an execution
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the id; with --wait the result. An answered submit is stored: it is never lost, and the same --idempotency-key \
gives
the same execution. Exit code 4 when the execution that was waited for ended FAILED.

Examples:
  longhaul submit invoice-extraction --input @invoice.json --wait
  longhaul submit --agent researcher --input '{\"prompt\": \"What is new?\"}'
  jq -n '{text: \"…\"}' | longhaul submit mail-triage --input - --priority 9 --metadata customer=acme
  longhaul submit invoice-extraction --input @invoice.json --idempotency-key inv-17 --run-at $(date -u -d +1hour \
  +%FT%TZ)")]
pub struct SubmitArgs {
    /// Key of the definition
    #[arg(required_unless_present = "agent", conflicts_with = "agent")]
    definition: Option<String>,
    /// Run an agent directly, on {"prompt": …} or {"messages": […]}
    #[arg(long, value_name = "KEY")]
    agent: Option<String>,
    /// The input as JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: String,
    /// Version of the definition or agent; the newest if absent
    #[arg(long, value_name = "N")]
    definition_version: Option<i32>,
    /// Wait until the execution is over, with live progress
    #[arg(long)]
    wait: bool,
    /// Priority from 0 to 9, higher first; 5 if absent
    #[arg(long, value_name = "N")]
    priority: Option<i16>,
    /// Queue; `default` if absent
    #[arg(long)]
    queue: Option<String>,
    /// Metadata for filters; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Idempotency key: the same key gives the same execution, never a second one
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    caps: Caps,
    /// Start no earlier than this time, such as "tomorrow 9:00" or 2h
    #[arg(long, value_name = "TIME", value_parser = times::coming)]
    run_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// The budget of a tree of executions.
#[derive(Debug, clap::Args)]
pub(super) struct Caps {
    /// Largest cost of the execution and everything it starts, in US dollars
    #[arg(long, value_name = "USD")]
    max_cost: Option<Usd>,
    /// Largest number of tokens, sent and received
    #[arg(long, value_name = "N")]
    max_tokens: Option<u32>,
    /// Largest number of model calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_model_calls: Option<u32>,
}

impl Caps {
    /// The caps as the API's request body; `None` if no cap is given.
    pub(super) fn body(&self) -> Option<Value> {
        let given = [
            ("max_cost_usd", self.max_cost.map(|cost| json!(cost))),
            ("max_tokens", self.max_tokens.map(Value::from)),
            ("max_model_calls", self.max_model_calls.map(Value::from)),
        ];
        let caps: Map<String, Value> =
            given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        (!caps.is_empty()).then_some(caps.into())
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// # Errors
/// The input is not JSON, the API refuses, or it is unreachable.
pub async fn run(args: SubmitArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let body = body(&args)?;
    let mut request = client.request(Method::POST, "/v1/executions").json(&body);
    if let Some(key) = &args.idempotency_key {
        request = request.header("Idempotency-Key", key);
    }
    let execution = match client.send(request).await {
        Ok(answer) => answer.body,
        Err(error) => return Err(suggest::nearest_of_body(&client, &body, error).await.into()),
    };
    finish(&client, execution, args.wait, context).await
}

/// Completes a submit, retry or fork: prints the id, or waits and prints the result.
pub(super) async fn finish(client: &Client, execution: Value, wait: bool, context: &Context) -> anyhow::Result<Exit> {
    let id = execution["id"].as_str().context("the answer has no id")?.to_owned();
    if !wait {
        if context.json {
            output::json(&execution);
        } else {
            output::line(&id);
        }
        return Ok(Exit::Done);
    }
    let ended = progress::follow_live(client, &id).await?;
    progress::print(&ended, context.json);
    Ok(progress::exit_of(&ended))
}

fn body(args: &SubmitArgs) -> anyhow::Result<Value> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    set("definition", args.definition.clone().map(Value::from));
    set("agent", args.agent.clone().map(Value::from));
    set("input", Some(json_input("--input", &args.input)?));
    set("version", args.definition_version.map(Value::from));
    set("priority", args.priority.map(Value::from));
    set("queue", args.queue.clone().map(Value::from));
    set("budget", args.caps.body());
    set("run_at", args.run_at.map(|at| json!(at)));
    let metadata: Map<String, Value> =
        args.metadata.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    set("metadata", (!metadata.is_empty()).then_some(metadata.into()));
    Ok(body.into())
}
