//! `longhaul keys`: manages API keys in the database directly, since the first key cannot be made through the API.

use longhaul_command::{Context, Exit, output};
use longhaul_shared::{config::Config, domain::TenantId};
use longhaul_store::{
    Store,
    tenants::api_keys::{ApiKey, Scope},
};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::{compose, exit::NotFoundError};

/// Create, list and revoke API keys
#[derive(Debug, clap::Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KeysCommand {
    /// Create a key; it is printed once and stored as a hash
    #[command(after_help = "\
Needs DATABASE_URL and the API's LONGHAUL_API_KEY_PEPPER.
Scopes: executions:read, executions:write, approvals:decide, definitions:read, definitions:write, admin.

Examples:
  longhaul keys create --name checkout --org acme
  export LONGHAUL_API_KEY=$(longhaul keys create --name ci --org acme --scopes executions:read,executions:write)")]
    Create(CreateArgs),
    /// List the keys of a tenant, including revoked keys
    List(TenantArgs),
    /// Revoke a key by its id or prefix; all processes refuse it within 10 seconds
    Revoke {
        /// Id of the key, or the 8 characters after `lh_`
        key: String,
        #[command(flatten)]
        tenant: TenantArgs,
    },
}

#[derive(Debug, clap::Args)]
struct TenantArgs {
    /// Organisation of the tenant
    #[arg(long, value_name = "ORG")]
    org: String,
    /// Group within the organisation; the organisation itself if absent
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// Name of the key
    #[arg(long)]
    name: String,
    #[command(flatten)]
    tenant: TenantArgs,
    /// Scopes of the key, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = scope,
        default_value = "executions:read,executions:write,definitions:read")]
    scopes: Vec<Scope>,
}

fn scope(name: &str) -> Result<Scope, String> {
    Scope::parse(name).ok_or_else(|| {
        let known: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
        format!("there are {}", known.join(", "))
    })
}

/// Runs a subcommand.
///
/// # Errors
/// A setting is missing, Postgres is unreachable, or the tenant does not exist.
pub async fn run(config: Config, args: KeysArgs, context: &Context) -> anyhow::Result<Exit> {
    let store = compose::store(&config, "longhaul-keys")?;
    store.check_server().await?;
    store.need_schema().await?;
    match args.command {
        KeysCommand::Create(create) => make(&config, &store, &create, context).await,
        KeysCommand::List(tenant) => {
            let keys = store.list_api_keys(find(&store, &tenant).await?).await?;
            print(&keys, context);
            Ok(Exit::Done)
        }
        KeysCommand::Revoke { key, tenant } => {
            let short = key.strip_prefix("lh_").unwrap_or(&key);
            let revoked = store.revoke_api_key(find(&store, &tenant).await?, short).await?;
            if context.json {
                output::json(&json!({"revoked": revoked}));
            } else {
                output::line(format!("{revoked} revoked"));
            }
            Ok(if revoked == 0 { Exit::NotFound } else { Exit::Done })
        }
    }
}

async fn make(config: &Config, store: &Store, args: &CreateArgs, context: &Context) -> anyhow::Result<Exit> {
    let pepper = compose::pepper(config)?;
    let tenant = store.ensure_tenant(&args.tenant.org, args.tenant.group.as_deref()).await?;
    let key = store.issue_api_key(tenant.id, &args.name, &args.scopes, &pepper).await?;
    let scopes: Vec<&str> = args.scopes.iter().map(|scope| scope.as_str()).collect();
    if context.json {
        output::json(&json!({
            "id": key.id.to_string(), "key": key.key.expose_secret(), "prefix": key.prefix, "name": args.name,
            "org_id": tenant.org_id, "group_id": tenant.group_id, "scopes": scopes,
        }));
    } else {
        // Only the key goes to standard output, so that a shell can capture it.
        output::note(format!(
            "made key {} for {} with {}; it is shown this once:",
            key.prefix,
            tenant.org_id,
            scopes.join(", ")
        ));
        output::line(key.key.expose_secret());
    }
    Ok(Exit::Done)
}

async fn find(store: &Store, args: &TenantArgs) -> anyhow::Result<TenantId> {
    let found = store.find_tenants(&args.org, Some(args.group.as_deref().unwrap_or_default())).await?;
    let group = args.group.as_deref().unwrap_or_default();
    let Some(tenant) = found.first() else {
        let (org, in_group) =
            (&args.org, if group.is_empty() { String::new() } else { format!(" and group `{group}`") });
        let text = format!("there is no tenant of organisation `{org}`{in_group}; it is made with its first key");
        return Err(NotFoundError(text).into());
    };
    Ok(tenant.id)
}

fn print(keys: &[ApiKey], context: &Context) {
    let scopes = |key: &ApiKey| key.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>();
    if context.json {
        let keys: Vec<Value> = keys
            .iter()
            .map(|key| {
                json!({
                    "id": key.id.to_string(), "prefix": key.prefix, "name": key.name, "scopes": scopes(key),
                    "created_at": key.created_at, "revoked_at": key.revoked_at,
                })
            })
            .collect();
        output::json(&keys);
        return;
    }
    let mut table = output::table(["PREFIX", "NAME", "SCOPES", "CREATED", "REVOKED"]);
    for key in keys {
        table.add_row([
            key.prefix.clone(),
            key.name.clone(),
            scopes(key).join(" "),
            key.created_at.format("%F %T").to_string(),
            key.revoked_at.map_or_else(String::new, |at| at.format("%F %T").to_string()),
        ]);
    }
    output::line(table.to_string());
}
