//! `longhaul accounts`: people who sign in to the page.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use super::keys;
use crate::client::Client;

/// List the people who signed in to the page, disable an account, and enable it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs a key with the scope keys:write. People sign in with an OpenID Connect provider, which gives them their roles
(section [oidc] of the configuration).

Examples:
  longhaul accounts
  longhaul accounts disable 8a6e0804-2bd0-4672-b79d-d97027f9071a")]
pub struct AccountsArgs {
    #[command(subcommand)]
    command: Option<AccountsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum AccountsCommand {
    /// List accounts (default)
    List(Reach),
    /// End the sessions of a person, and refuse further sign-ins
    Disable {
        /// Id of the account
        id: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Let a person sign in again
    Enable {
        /// Id of the account
        id: String,
        #[command(flatten)]
        reach: Reach,
    },
}

#[derive(Debug, Default, clap::Args)]
struct Reach {
    /// Accounts of all tenants; needs the scope admin
    #[arg(long)]
    all_tenants: bool,
}

impl Reach {
    fn query(&self) -> [(&'static str, &'static str); 1] {
        [("all_tenants", if self.all_tenants { "true" } else { "false" })]
    }
}

/// Runs a subcommand; without one, lists the accounts.
///
/// # Errors
/// There is no such account, the key lacks the scope, or the API is unreachable.
pub async fn run(args: AccountsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    match args.command.unwrap_or(AccountsCommand::List(Reach::default())) {
        AccountsCommand::List(reach) => list(&client, &reach, context).await,
        AccountsCommand::Disable { id, reach } => set(&client, (&id, "disable"), &reach, context).await,
        AccountsCommand::Enable { id, reach } => set(&client, (&id, "enable"), &reach, context).await,
    }
}

async fn list(client: &Client, reach: &Reach, context: &Context) -> anyhow::Result<Exit> {
    let accounts = client.all("/v1/accounts", &reach.query(), "accounts").await?;
    if context.json {
        output::json(&json!({ "accounts": accounts }));
        return Ok(Exit::Done);
    }
    if accounts.is_empty() {
        output::line("no person has signed in");
        return Ok(Exit::Done);
    }
    let mut table = output::table(["ID", "NAME", "E-MAIL", "ROLES", "SIGNED IN", "STATE"]);
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    for account in &accounts {
        let roles: Vec<&str> = account["roles"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        table.add_row([
            text(&account["id"]),
            text(&account["name"]),
            text(&account["email"]),
            roles.join(", "),
            text(&account["signed_in_at"]).chars().take(19).collect(),
            if account["disabled_at"].is_null() { "active".to_owned() } else { "disabled".to_owned() },
        ]);
    }
    output::line(table.trim_fmt());
    Ok(Exit::Done)
}

async fn set(client: &Client, (id, verb): (&str, &str), reach: &Reach, context: &Context) -> anyhow::Result<Exit> {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let id: String = id.chars().filter(is_plain).collect();
    let request = client.request(Method::POST, &format!("/v1/accounts/{id}/{verb}")).query(&reach.query());
    let account = client.send(request).await?.body;
    if context.json {
        output::json(&account);
        return Ok(Exit::Done);
    }
    output::line(format!("{verb}d {}", account["name"].as_str().unwrap_or_default()));
    if verb == "disable" {
        let held = client.request(Method::GET, &format!("/v1/keys/{id}/holdings")).query(&reach.query());
        keys::note_left(&client.send(held).await?.body);
    }
    Ok(Exit::Done)
}
