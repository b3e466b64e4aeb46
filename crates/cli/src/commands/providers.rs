//! `longhaul providers`: lists the state of the model endpoints and their waiters, and resets circuit breakers.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;

/// List model endpoints that are down or at their limits, and reset one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs a key with the scope admin. Without a subcommand: the list. After a reset one execution that waits goes ahead, \
then two, four,
and so on as the endpoint answers.

Examples:
  longhaul providers
  longhaul providers reset openai
  longhaul providers reset openai --model gpt-4.1-mini")]
pub struct ProvidersArgs {
    #[command(subcommand)]
    command: Option<ProvidersCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ProvidersCommand {
    /// Mark a provider as available again, for instance after its quota was raised
    Reset {
        /// Name of the provider in the configuration
        provider: String,
        /// Model to reset; all if absent
        #[arg(long)]
        model: Option<String>,
        /// Fingerprint of the key to reset; all keys if absent
        #[arg(long, value_name = "FINGERPRINT")]
        key: Option<String>,
    },
}

/// Lists the endpoints, or resets some.
///
/// # Errors
/// The endpoint does not exist, the key lacks the scope, or the API is unreachable.
pub async fn run(args: ProvidersArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let answer = match args.command {
        None => client.get("/v1/providers/health").await?,
        Some(ProvidersCommand::Reset { provider, model, key }) => {
            let mut body = json!({ "provider": provider });
            for (name, value) in [("model", model), ("key", key)] {
                if let Some(value) = value {
                    body[name] = value.into();
                }
            }
            client.send(client.request(Method::POST, "/v1/providers/health/reset").json(&body)).await?.body
        }
    };
    if context.json {
        output::json(&answer);
        return Ok(Exit::Done);
    }
    let none = Vec::new();
    let endpoints = answer["endpoints"].as_array().unwrap_or(&none);
    if endpoints.is_empty() {
        output::line("no model endpoint has failed");
    }
    for endpoint in endpoints {
        output::line(sentence(endpoint));
    }
    Ok(Exit::Done)
}

fn sentence(of: &Value) -> String {
    let text = |name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let mut line = format!("{} {} (key {}): {}", text("provider"), text("model"), text("key"), text("state"));
    if text("state") != "closed" {
        line.push_str(&format!(", {} {}, since {}", text("cause"), text("failure_code"), text("since")));
        if !text("until").is_empty() {
            let said = if of["is_stated"] == true { " as the provider says" } else { "" };
            line.push_str(&format!(", until {}{said}", text("until")));
        }
    }
    if let Some(calls) = of["concurrency"].as_i64() {
        line.push_str(&format!(", {calls} calls at a time"));
    }
    if let Some(calls) = of["calls_per_second"].as_f64() {
        line.push_str(&format!(", {calls:.1} calls a second"));
    }
    for (name, reason) in [("waiting", "for it"), ("waiting_for_rate", "for its limits")] {
        match of[name].as_i64() {
            Some(0) | None => {}
            Some(count) => line.push_str(&format!(", {count} wait {reason}")),
        }
    }
    line
}
