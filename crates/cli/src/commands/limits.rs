//! `longhaul limits`: manages concurrency limits.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;

/// List, set and remove concurrency limits
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A key is tenant, definition, agent, queue or metadata.<path>: each of its values may run so many executions at a time.
With :value the limit is about that value alone. A limit of 0 is a hold. Limits of definitions and agents are part of
their YAML (`concurrency`).

Examples:
  longhaul limits
  longhaul limits set metadata.customer 5
  longhaul limits set agent:invoice-clerk 20
  longhaul limits set queue:bulk 0               hold a queue
  longhaul limits set tenant 200 --shared        every tenant; needs the scope admin
  longhaul limits remove metadata.customer")]
pub struct LimitsArgs {
    #[command(subcommand)]
    command: Option<LimitsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum LimitsCommand {
    /// Set a limit; executions that already run continue
    Set {
        /// Key of the limit: tenant, definition, agent, queue or `metadata.<path>`, optionally with :value
        key: String,
        /// Largest number of executions that may run at a time, up to 10000; 0 holds all back
        limit: u32,
        /// Apply the limit to all tenants
        #[arg(long)]
        shared: bool,
    },
    /// Remove a limit; executions that wait for it may run
    Remove {
        /// Key of the limit, as it was set
        key: String,
        /// Remove the limit for all tenants
        #[arg(long)]
        shared: bool,
    },
}

/// Runs a subcommand; without one, lists the limits.
///
/// # Errors
/// The key is invalid, the limit does not exist, or the API is unreachable.
pub async fn run(args: LimitsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    match args.command {
        None => list(&client, context).await,
        Some(LimitsCommand::Set { key, limit, shared }) => {
            let request = client.request(Method::PUT, &path(&key)).query(&[("shared", shared)]);
            let set = client.send(request.json(&json!({ "limit": limit }))).await?.body;
            if context.json {
                output::json(&set);
            } else {
                output::line(format!("{key}: at most {limit} at a time; {} that waited may run now", set["woken"]));
            }
            Ok(Exit::Done)
        }
        Some(LimitsCommand::Remove { key, shared }) => {
            client.send(client.request(Method::DELETE, &path(&key)).query(&[("shared", shared)])).await?;
            output::note(format!("{key} is not limited any more"));
            Ok(Exit::Done)
        }
    }
}

/// Percent-encodes the key, since a value may contain characters that a path may not.
fn path(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':');
    let encode = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    format!("/v1/limits/{}", key.bytes().map(encode).collect::<String>())
}

async fn list(client: &Client, context: &Context) -> anyhow::Result<Exit> {
    let limits = client.all("/v1/limits", &[], "limits").await?;
    if context.json {
        output::json(&json!({ "limits": limits }));
        return Ok(Exit::Done);
    }
    if limits.is_empty() {
        output::line("nothing is limited");
    }
    for limit in limits {
        let text = |field: &str| limit[field].as_str().unwrap_or("-").to_owned();
        output::line(format!(
            "{:<32}  at most {:>5}  held {:>5}  waiting {:>5}  {} {}",
            text("key"),
            limit["limit"],
            limit["held"],
            limit["waiting"],
            text("source"),
            limit["subject"].as_str().unwrap_or(if limit["shared"] == true { "for all tenants" } else { "" }),
        ));
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_values_are_escaped_as_path_segments() {
        assert_eq!(path("metadata.customer:a/b ü"), "/v1/limits/metadata.customer:a%2Fb%20%C3%BC");
    }
}
