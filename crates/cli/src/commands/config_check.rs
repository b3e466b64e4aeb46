//! `longhaul config check`: prints the effective configuration and warns of risky settings.

use std::time::Duration;

use longhaul_command::{Context, Exit, output};
use longhaul_config::{AllowedAgents, Config, LlmConfig, ProviderKind};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::compose;

/// Longest wait for the settings of Postgres.
const PATIENCE: Duration = Duration::from_secs(3);

/// Show and check the configuration
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Print every setting without secrets, and warn of risky settings
    #[command(after_help = "\
A broken rule or an unknown setting ends with exit code 2. Warnings do not change the exit code.

Examples:
  longhaul config check
  longhaul config check --config /etc/longhaul.toml --json")]
    Check,
}

/// Prints the settings and the warnings.
///
/// # Errors
/// The configuration is invalid.
pub async fn run(args: ConfigArgs, context: &Context) -> anyhow::Result<Exit> {
    let ConfigCommand::Check = args.command;
    let config = context.load(Vec::new())?;
    let mut warnings = warnings(&config);
    warnings.extend(database_warnings(&config).await);
    if context.json {
        output::json(&json!({"settings": config.settings(), "warnings": warnings}));
        return Ok(Exit::Done);
    }
    for (key, value) in config.settings() {
        output::line(format!("{key} = {value}"));
    }
    for warning in &warnings {
        output::note(format!("warning: {warning}"));
    }
    Ok(Exit::Done)
}

fn warn_of_models(config: &LlmConfig, warn: &mut impl FnMut(bool, &str)) {
    warn(
        config.default_provider.is_empty(),
        "no model is configured: a worker does not start (OPENAI_API_KEY, ANTHROPIC_API_KEY, LONGHAUL_LLM_URL, or \
         llm.default_provider)",
    );
    let provider = config.providers.get(&config.default_provider);
    warn(
        provider.is_some_and(|provider| provider.kind == ProviderKind::Scripted),
        "llm.default_provider is the scripted model: answers are computed by scripts and no model is asked",
    );
}

fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |risky: bool, text: &str| {
        if risky {
            warnings.push(text.to_owned());
        }
    };
    warn(
        config.database.url.is_none(),
        "database.url is not set; api, worker, migrate and keys need it (DATABASE_URL)",
    );
    warn(config.redis.url.is_none(), "redis.url is not set; api and worker need it (REDIS_URL)");
    warn(config.api.key_pepper.is_none(), "api.key_pepper is not set; api and keys need it (LONGHAUL_API_KEY_PEPPER)");
    warn_of_models(&config.llm, &mut warn);
    warn(
        config.tools.fetch_url.allow_private_addresses,
        "tools.fetch_url.allow_private_addresses is on: executions can reach your internal network",
    );
    warn(
        config.tools.mcp.private_addresses == AllowedAgents::Any,
        "tools.mcp.private_addresses is `any`: the tool servers of tenants' own agents may be in your internal network",
    );
    warn(
        !config.api.listen.ip().is_loopback(),
        "api.listen is reachable from other machines; the API speaks plain HTTP, so put TLS in front of it",
    );
    warn(
        !config.sandbox.listen.ip().is_loopback() && config.sandbox.token.is_none(),
        "sandbox.listen is reachable from other machines and sandbox.token is not set: whoever reaches it may run code",
    );
    warn(
        config.sandbox.dangerously_run_unconfined,
        "sandbox.dangerously_run_unconfined is on: where nothing confines, code does what the sandbox's user may do",
    );
    warn(
        config.worker.concurrency > 0 && config.worker.lease < Duration::from_secs(4),
        "worker.lease_seconds is under 4: a short stall of Postgres would end every lease of a process",
    );
    let plain_http = config.llm.providers.iter().filter(|(_, provider)| {
        let url = provider.base_url.as_deref().unwrap_or_default();
        provider.api_key.is_some()
            && url.starts_with("http://")
            && !url.contains("127.0.0.1")
            && !url.contains("localhost")
    });
    for (name, _) in plain_http {
        warnings.push(format!("llm.providers.{name} sends its key over plain http"));
    }
    let literal = config.llm.providers.iter().filter(|(_, provider)| {
        provider.api_key.as_ref().is_some_and(|key| !key.expose_secret().starts_with("env://"))
    });
    for (name, _) in literal {
        warnings.push(format!("llm.providers.{name}.api_key is written out; env://NAME keeps it out of files"));
    }
    warnings
}

/// Warnings about the server's own settings: an acknowledged write is only as durable as they make it.
async fn database_warnings(config: &Config) -> Vec<String> {
    if config.database.url.is_none() {
        return Vec::new();
    }
    let asked = async {
        let store = compose::store(config, "longhaul-config-check")?;
        anyhow::Ok(store.durability().await?)
    };
    let durability = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(durability)) => durability,
        Ok(Err(error)) => return vec![format!("Postgres could not be asked for its settings: {error:#}")],
        Err(_) => return vec!["Postgres did not answer in time, so its settings were not checked".to_owned()],
    };
    let mut warnings = Vec::new();
    for setting in durability.unsafe_settings() {
        warnings.push(format!(
            "Postgres runs with {setting}=off: no role starts, since a crash loses acknowledged executions"
        ));
    }
    if !durability.is_replicated() {
        warnings.push(
            "Postgres commits wait for no standby: losing its disk loses what was acknowledged since the last copy"
                .to_owned(),
        );
    }
    warnings
}
