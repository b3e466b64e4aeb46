//! `longhaul definitions` and `longhaul agents`: what can be submitted.

use longhaul_command::{Context, Exit, output};
use serde_json::{Value, json};

use crate::{
    client::Client,
    suggest::{self, Kind},
};

/// List the definitions that can be submitted
#[derive(Debug, clap::Args)]
pub struct DefinitionsArgs {
    /// Show one: its newest version, as it was applied
    key: Option<String>,
}

/// List the agents
#[derive(Debug, clap::Args)]
pub struct AgentsArgs {
    /// Show one: its newest version, as it was applied
    key: Option<String>,
}

/// # Errors
/// There is none of that key, or the API is unreachable.
pub async fn definitions(args: DefinitionsArgs, context: &Context) -> anyhow::Result<Exit> {
    show(Kind::Definition, args.key, context).await
}

/// # Errors
/// There is none of that key, or the API is unreachable.
pub async fn agents(args: AgentsArgs, context: &Context) -> anyhow::Result<Exit> {
    show(Kind::Agent, args.key, context).await
}

async fn show(kind: Kind, key: Option<String>, context: &Context) -> anyhow::Result<Exit> {
    let path = kind.path();
    let client = Client::new(&context.load_for_client()?)?;
    if let Some(key) = key {
        let version = match client.get(&format!("{path}/{key}")).await {
            Ok(version) => version,
            Err(error) => return Err(suggest::nearest(&client, kind, &key, error).await.into()),
        };
        output::json(if context.json { &version } else { &version["spec"] });
        return Ok(Exit::Done);
    }
    let items = client.all(path, &[("limit", "200")], "items").await?;
    if context.json {
        output::json(&json!({ "items": items }));
        return Ok(Exit::Done);
    }
    let mut table = output::table(["KEY", "VERSION", "OWNER", "AGENT", "NAME"]);
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    for item in &items {
        let owner = if item["shared"] == true { "shared" } else { "own" };
        let spec = &item["spec"];
        table.add_row([
            text(&item["key"]),
            item["version"].to_string(),
            owner.to_owned(),
            text(&spec["agent_key"]),
            text(&spec["name"]),
        ]);
    }
    output::line(table.trim_fmt());
    Ok(Exit::Done)
}
