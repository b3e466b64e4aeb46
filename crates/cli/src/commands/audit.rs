//! `longhaul audit`: changes over the API.

use chrono::{DateTime, Utc};
use longhaul_command::{Context, Exit, output, times};
use reqwest::Method;
use serde_json::Value;

use crate::client::Client;

/// List changes over the API: the key, the operation and the answer of each
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs a key with the scope audit:read. Newest first; refused requests are listed too, submits and messages are not.

Examples:
  longhaul audit
  longhaul audit --route /v1/keys/{id} --since 2026-11-01T00:00:00Z
  longhaul audit --target 0197fca0-1c6e-7aa2-9a40-6a3d7b0f2a11
  longhaul audit --all-tenants --json | jq -r '.entries[].actor_name'")]
pub struct AuditArgs {
    /// By the key with this id
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// With this template of the path, such as `/v1/webhooks/{id}`
    #[arg(long, value_name = "PATH")]
    route: Option<String>,
    /// To this object: its id or key
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// At this time or later, such as 2026-12-01 or 1d
    #[arg(long, value_name = "TIME", value_parser = times::past)]
    since: Option<DateTime<Utc>>,
    /// Before this time, such as 2026-12-01 or 1d
    #[arg(long, value_name = "TIME", value_parser = times::past)]
    until: Option<DateTime<Utc>>,
    /// By keys of all tenants; needs the scope admin
    #[arg(long)]
    all_tenants: bool,
    /// Rows per page, 1 to 200
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Page to continue with: `next_cursor` of the previous page
    #[arg(long)]
    cursor: Option<String>,
}

impl AuditArgs {
    fn query(&self) -> Vec<(&'static str, String)> {
        let time = |at: Option<DateTime<Utc>>| at.map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true));
        let given = [
            ("actor", self.key.clone()),
            ("route", self.route.clone()),
            ("target", self.target.clone()),
            ("since", time(self.since)),
            ("until", time(self.until)),
            ("all_tenants", self.all_tenants.then(|| "true".to_owned())),
            ("limit", Some(self.limit.to_string())),
            ("cursor", self.cursor.clone()),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// # Errors
/// A filter is invalid, the key lacks the scope, or the API is unreachable.
pub async fn run(args: AuditArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let page = client.send(client.request(Method::GET, "/v1/audit").query(&args.query())).await?.body;
    if context.json {
        output::json(&page);
        return Ok(Exit::Done);
    }
    let entries = page["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    if entries.is_empty() {
        output::line("there are no changes");
        return Ok(Exit::Done);
    }
    let mut table = output::table(["AT", "KEY", "CHANGE", "TARGET", "STATUS"]);
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    for entry in entries {
        table.add_row([
            text(&entry["at"]).chars().take(19).collect(),
            text(&entry["actor_name"]),
            format!("{} {}", text(&entry["method"]), text(&entry["route"])),
            text(&entry["target"]),
            entry["status"].as_u64().map_or_else(|| "-".to_owned(), |status| status.to_string()),
        ]);
    }
    output::line(table.trim_fmt());
    if let Some(cursor) = page["next_cursor"].as_str() {
        output::note(format!("more with --cursor {cursor}"));
    }
    Ok(Exit::Done)
}
