//! `longhaul keys`: manages API keys in the database directly, since the first key cannot be made through the API
//! (`/v1/keys` manages the others).

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_command::{Context, Exit, output};
use longhaul_config::Config;
use longhaul_domain::{Role, TenantId};
use longhaul_store::{
    Store,
    tenants::{
        accounts::scopes_of,
        api_keys::{ApiKey, IssuedKey, KeyState, Scope},
        key_management::{Issue, MAX_KEYS, NewKey, Rotation},
    },
};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::{
    compose,
    exit::{NotFoundError, UsageError},
};

/// Most entries of each list of what a key left.
const MAX_LISTED: i64 = 200;

/// Create, list, rotate and revoke API keys
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
Scopes: executions:read, executions:write, approvals:decide, definitions:read, definitions:write, workers:run, \
keys:write, audit:read, admin.
Roles: viewer, operator, approver, admin, superadmin; a key keeps the scopes that they have now.

Examples:
  longhaul keys create --name checkout --org acme
  longhaul keys create --name on-call --org acme --role operator --role approver
  longhaul keys create --name partner --org acme --expires 90d
  export LONGHAUL_API_KEY=$(longhaul keys create --name ci --org acme --scopes executions:read,executions:write)")]
    Create(CreateArgs),
    /// List the keys of a tenant, including revoked keys
    List(TenantArgs),
    /// Create a key in the place of another, which is accepted for a while longer
    #[command(after_help = "\
Needs DATABASE_URL and the API's LONGHAUL_API_KEY_PEPPER. The new key has the name and the scopes of the old one.

Example:
  longhaul keys rotate x7Kq2LmN --org acme --overlap 1h")]
    Rotate {
        /// Id of the key, or the 8 characters after `lh_`
        key: String,
        #[command(flatten)]
        tenant: TenantArgs,
        /// Time for which the old key is still accepted: minutes (30m), hours (24h) or days (7d)
        #[arg(long, value_name = "TIME", value_parser = time, default_value = "24h")]
        overlap: Duration,
        /// Life of the new key; without it, the new key ends when the old one would have
        #[arg(long, value_name = "TIME", value_parser = time)]
        expires: Option<Duration>,
    },
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
    /// Scopes of the key, separated by commas; without --role, the default is
    /// executions:read,executions:write,definitions:read
    #[arg(long, value_delimiter = ',', value_parser = scope)]
    scopes: Vec<Scope>,
    /// Role whose scopes the key has; may be given several times
    #[arg(long = "role", value_name = "ROLE", value_parser = role)]
    roles: Vec<Role>,
    /// Life of the key: minutes (30m), hours (24h) or days (90d); without it, the key does not expire
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<Duration>,
}

fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time, such as 30m, 24h or 90d");
    let unit = match text.chars().last() {
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 24 * 3_600,
        Some(_) | None => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * unit))
}

fn scope(name: &str) -> Result<Scope, String> {
    Scope::parse(name).ok_or_else(|| {
        let known: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
        format!("there are {}", known.join(", "))
    })
}

fn role(name: &str) -> Result<Role, String> {
    Role::parse(name).ok_or_else(|| {
        let known: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
        format!("there are {}", known.join(", "))
    })
}

impl CreateArgs {
    fn scopes(&self) -> Vec<Scope> {
        if self.scopes.is_empty() && self.roles.is_empty() {
            return vec![Scope::ExecutionsRead, Scope::ExecutionsWrite, Scope::DefinitionsRead];
        }
        scopes_of(&self.roles, &self.scopes)
    }
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
            let tenant = find(&store, &tenant).await?;
            print(&store.list_api_keys(&tenant.into(), None, MAX_KEYS).await?, context);
            Ok(Exit::Done)
        }
        KeysCommand::Rotate { key, tenant, overlap, expires } => {
            let tenant = find(&store, &tenant).await?;
            let old = named(&store, tenant, &key).await?;
            let expires_at = end(&store, expires).await?.or(old.expires_at);
            let rotation = Rotation { tenant, id: old.id, overlap, expires_at };
            let issue = store.rotate_key(&rotation, &compose::pepper(&config)?).await?;
            let key = issued(issue)?;
            let until = format!("the old one, {}, is accepted for {} s more", old.prefix, overlap.as_secs());
            show(
                &key,
                &json!({ "name": old.name, "scopes": scopes(&old.scopes), "expires_at": expires_at }),
                &until,
                context,
            );
            Ok(Exit::Done)
        }
        KeysCommand::Revoke { key, tenant } => {
            let short = key.strip_prefix("lh_").unwrap_or(&key);
            let tenant = find(&store, &tenant).await?;
            let revoked = store.revoke_api_key(tenant, short).await?;
            let mut left = Vec::new();
            for key in &revoked {
                left.push(json!(store.holdings(tenant, *key, MAX_LISTED).await?));
            }
            if context.json {
                output::json(&json!({ "revoked": revoked.len(), "left": left }));
            } else {
                output::line(format!("{} revoked", revoked.len()));
                left.iter().for_each(note_left);
            }
            Ok(if revoked.is_empty() { Exit::NotFound } else { Exit::Done })
        }
    }
}

/// Tells, in the shape of the API's answer, what a revoked key or a disabled account left, and what to do about it.
pub fn note_left(left: &Value) {
    let of = |list: &str| left[list].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for webhook in of("webhooks") {
        let (id, kind) = (text(&webhook["id"]), text(&webhook["kind"]));
        let goes_on = webhook["is_enabled"] == true;
        output::note(match (kind.as_str(), goes_on) {
            ("standard", true) => format!("its webhook {id} goes on; remove it with: longhaul webhook delete {id}"),
            (_, true) => format!("its channel {id} ({kind}) goes on"),
            (_, false) => format!("its {kind} webhook or channel {id} is off"),
        });
    }
    for schedule in of("schedules") {
        let key = text(&schedule);
        output::note(format!("its schedule {key} starts nothing; write it with another key to go on"));
    }
    for message in of("queued_messages") {
        let id = text(&message["execution_id"]);
        output::note(format!("its message waits for its turn; withdraw it with: longhaul cancel {id}"));
    }
}

async fn make(config: &Config, store: &Store, args: &CreateArgs, context: &Context) -> anyhow::Result<Exit> {
    let pepper = compose::pepper(config)?;
    let tenant = store.ensure_tenant(&args.tenant.org, args.tenant.group.as_deref()).await?;
    let expires_at = end(store, args.expires).await?;
    let scopes_given = args.scopes();
    let new = NewKey { tenant: tenant.id, name: &args.name, scopes: &scopes_given, expires_at };
    let key = issued(store.issue_key(&new, &pepper).await?)?;
    let about = json!({
        "name": args.name, "org_id": tenant.org_id, "group_id": tenant.group_id, "scopes": scopes(&scopes_given),
        "expires_at": expires_at,
    });
    show(&key, &about, &format!("for {} with {}", tenant.org_id, scopes(&scopes_given).join(", ")), context);
    Ok(Exit::Done)
}

async fn end(store: &Store, life: Option<Duration>) -> anyhow::Result<Option<DateTime<Utc>>> {
    let Some(life) = life else { return Ok(None) };
    let end = store.now().await?.checked_add_signed(TimeDelta::from_std(life)?);
    Ok(Some(end.ok_or_else(|| UsageError("--expires is later than any time".into()))?))
}

fn issued(issue: Issue) -> anyhow::Result<IssuedKey> {
    match issue {
        Issue::Issued(key) => Ok(key),
        Issue::TooMany => anyhow::bail!("the tenant has {MAX_KEYS} keys, which is as many as there may be"),
        Issue::NotActive => anyhow::bail!("the key was revoked or has expired; create another"),
    }
}

/// Prints a new key. Only the key goes to standard output, so that a shell can capture it.
fn show(key: &IssuedKey, about: &Value, note: &str, context: &Context) {
    if context.json {
        let mut shown = about.clone();
        shown["id"] = key.id.to_string().into();
        shown["key"] = key.key.expose_secret().into();
        shown["prefix"] = key.prefix.as_str().into();
        output::json(&shown);
    } else {
        output::note(format!("made key {} {note}; it is shown this once:", key.prefix));
        output::line(key.key.expose_secret());
    }
}

/// The newest key of a tenant with that id or prefix.
async fn named(store: &Store, tenant: TenantId, key: &str) -> anyhow::Result<ApiKey> {
    let short = key.strip_prefix("lh_").unwrap_or(key);
    let keys = store.list_api_keys(&tenant.into(), None, MAX_KEYS).await?;
    let found = keys.into_iter().find(|known| known.prefix == short || known.id.to_string() == short);
    Ok(found.ok_or_else(|| NotFoundError(format!("the tenant has no key `{key}`")))?)
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

fn scopes(scopes: &[Scope]) -> Vec<&'static str> {
    scopes.iter().map(|scope| scope.as_str()).collect()
}

fn print(keys: &[ApiKey], context: &Context) {
    if context.json {
        let keys: Vec<Value> = keys
            .iter()
            .map(|key| {
                json!({
                    "id": key.id.to_string(), "prefix": key.prefix, "name": key.name, "scopes": scopes(&key.scopes),
                    "state": KeyState::as_str(key.state), "created_at": key.created_at, "expires_at": key.expires_at,
                    "revoked_at": key.revoked_at, "last_used_at": key.last_used_at,
                })
            })
            .collect();
        output::json(&keys);
        return;
    }
    let mut table = output::table(["PREFIX", "NAME", "STATE", "CREATED", "EXPIRES", "LAST USED", "SCOPES"]);
    let time = |at: Option<DateTime<Utc>>| at.map_or_else(|| "-".into(), |at| at.format("%F %T").to_string());
    for key in keys {
        table.add_row([
            key.prefix.as_str().into(),
            key.name.as_str().into(),
            output::state(key.state.as_str()),
            time(Some(key.created_at)).into(),
            time(key.expires_at).into(),
            time(key.last_used_at).into(),
            scopes(&key.scopes).join(" ").into(),
        ]);
    }
    output::line(table.trim_fmt());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_minutes_hours_or_days() {
        assert_eq!(time("30m"), Ok(Duration::from_secs(1_800)));
        assert_eq!(time("90d"), Ok(Duration::from_secs(90 * 24 * 3_600)));
        for wrong in ["", "d", "-1d", "1.5h", "90", "2w", "9é"] {
            assert!(time(wrong).unwrap_err().contains("90d"), "{wrong}");
        }
    }
}
