//! `longhaul whoami`.

use longhaul_command::{Context, Exit, output};
use serde_json::Value;

use crate::client::Client;

/// Show the tenant and the scopes of the API key in use
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  longhaul whoami")]
pub struct WhoamiArgs {}

/// # Errors
/// The key is unknown, revoked or expired, or the API is unreachable.
pub async fn run(_: WhoamiArgs, context: &Context) -> anyhow::Result<Exit> {
    let key = Client::new(&context.load_for_client()?)?.get("/v1/whoami").await?;
    if context.json {
        output::json(&key);
        return Ok(Exit::Done);
    }
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let tenant = &key["tenant"];
    let group = tenant["group_id"].as_str().map(|group| format!(" / {group}")).unwrap_or_default();
    let scopes: Vec<&str> = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    output::line(format!("key     {} ({})", text(&key["name"]), text(&key["key_id"])));
    output::line(format!("tenant  {}{group}", text(&tenant["org_id"])));
    output::line(format!("scopes  {}", scopes.join(", ")));
    Ok(Exit::Done)
}
