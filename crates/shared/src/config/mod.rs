//! The configuration: every setting of every role, read once at start. The only reader of the environment.
//!
//! Layers, later ones win: the embedded `deploy/config.default.toml`, a file, plain variables (`DATABASE_URL`, …),
//! `LONGHAUL__SECTION__KEY`, flags of the command. What must hold: a setting nobody knows is refused and its source
//! named; rules across settings are checked here, and a process that breaks one does not start; secrets are shown by
//! neither `Debug` nor [`Config::settings`]. What a role cannot do without (the database's address) is asked for through
//! an accessor that says how to give it, so that commands which need less run with less.

mod api;
mod client;
mod contract;
mod database;
mod layers;
mod llm;
mod redis;
mod retrieval;
mod sandbox;
mod secret;
mod telemetry;
mod tools;
mod units;
mod worker;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

pub use self::{
    api::ApiConfig,
    client::ClientConfig,
    contract::ContractConfig,
    database::DatabaseConfig,
    llm::{BudgetConfig, HealthConfig, LimitConfig, LlmConfig, PriceConfig, ProviderConfig, ProviderKind},
    redis::RedisConfig,
    retrieval::{EmbeddingsConfig, RetrievalConfig, VectorStoreKind},
    sandbox::{SandboxConfig, SandboxConfinement},
    secret::{host_name, inherited_environment, resolve_secret, reveal, split_at_reference},
    telemetry::{LogFormat, TelemetryConfig},
    tools::{AllowedAgents, FetchUrlConfig, McpConfig, RefusedServer, ToolsConfig},
    worker::{QuarantineConfig, WorkerConfig},
};
use crate::queue::QueueOptions;

/// The settings of a process.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Config {
    pub database: DatabaseConfig,
    pub redis: RedisConfig,
    pub api: ApiConfig,
    pub worker: WorkerConfig,
    pub llm: LlmConfig,
    pub tools: ToolsConfig,
    pub retrieval: RetrievalConfig,
    pub sandbox: SandboxConfig,
    pub telemetry: TelemetryConfig,
    pub contract: ContractConfig,
    pub client: ClientConfig,
}

/// Where settings come from, beside the defaults. Has no `Debug`: the environment is full of secrets.
#[derive(Clone, Default)]
pub struct Sources {
    /// `--config`; `LONGHAUL_CONFIG` of `environment` when absent.
    pub file: Option<PathBuf>,
    pub environment: BTreeMap<String, String>,
    /// Flags of the command, as (key, value): `("api.listen", "0.0.0.0:80")`.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// A file and flags over the environment of this process.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        // Variables that are not Unicode are none of ours; `vars` would panic over them.
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { file, environment: environment.collect(), flags }
    }
}

/// Why a process does not start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("unknown setting {key} in {origin}{hint}")]
    Unknown { key: String, origin: String, hint: String },
    #[error("the configuration cannot be read: {0}")]
    Unreadable(#[source] Box<::config::ConfigError>),
    #[error("the configuration breaks {}: {}", if .0.len() == 1 { "a rule" } else { "rules" }, .0.join("; "))]
    Rules(Vec<String>),
    #[error("{key} is not set; set {variable}, or {key} in the configuration file")]
    Missing { key: &'static str, variable: &'static str },
    #[error("the variable {name}, which a secret refers to, is not set")]
    Reference { name: String },
}

impl From<::config::ConfigError> for ConfigError {
    fn from(error: ::config::ConfigError) -> Self {
        Self::Unreadable(Box::new(error))
    }
}

impl Config {
    /// Reads and checks all layers.
    ///
    /// # Errors
    /// [`ConfigError`] naming the setting and where it came from, or every rule that is broken.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let config: Self = layers::merge(sources)?.try_deserialize()?;
        config.check()?;
        Ok(config)
    }

    /// Every setting by its key, as JSON, secrets left out: what `config check` shows.
    pub fn settings(&self) -> BTreeMap<String, serde_json::Value> {
        let mut settings = BTreeMap::new();
        // Cannot fail: the keys of all maps are texts.
        flatten("", serde_json::to_value(self).unwrap_or_default(), &mut settings);
        settings
    }

    /// # Errors
    /// [`ConfigError::Missing`] or [`ConfigError::Reference`].
    pub fn database_url(&self) -> Result<SecretString, ConfigError> {
        required(&self.database.url, "database.url", "DATABASE_URL")
    }

    /// # Errors
    /// [`ConfigError::Missing`] or [`ConfigError::Reference`] when there is no address of a Redis.
    pub fn queue_options(&self) -> Result<QueueOptions, ConfigError> {
        Ok(QueueOptions {
            url: required(&self.redis.url, "redis.url", "REDIS_URL")?,
            prefix: self.redis.prefix.clone(),
            list_cap: self.redis.list_cap,
            command_timeout: self.redis.command_timeout,
            connect_timeout: self.redis.connect_timeout,
        })
    }

    /// # Errors
    /// [`ConfigError::Missing`] or [`ConfigError::Reference`].
    pub fn key_pepper(&self) -> Result<SecretString, ConfigError> {
        required(&self.api.key_pepper, "api.key_pepper", "LONGHAUL_API_KEY_PEPPER")
    }

    fn check(&self) -> Result<(), ConfigError> {
        // Exhaustive on purpose: a new section cannot be forgotten.
        let Self { database, redis, api, worker, llm, tools, retrieval, sandbox, telemetry, contract, client } = self;
        let mut rules = Rules::default();
        database.check(&mut rules);
        redis.check(&mut rules);
        api.check(&mut rules);
        worker.check(&mut rules);
        llm.check(&mut rules);
        tools.check(&mut rules);
        retrieval.check(&mut rules);
        sandbox.check(&mut rules);
        telemetry.check(&mut rules);
        contract.check(&mut rules);
        client.check(&mut rules);
        if rules.broken.is_empty() { Ok(()) } else { Err(ConfigError::Rules(rules.broken)) }
    }
}

fn required(
    secret: &Option<SecretString>,
    key: &'static str,
    variable: &'static str,
) -> Result<SecretString, ConfigError> {
    reveal(secret.as_ref().ok_or(ConfigError::Missing { key, variable })?)
}

fn flatten(prefix: &str, value: serde_json::Value, settings: &mut BTreeMap<String, serde_json::Value>) {
    let fields = value.as_object().filter(|fields| !fields.is_empty());
    let Some(fields) = fields else {
        settings.insert(prefix.to_owned(), value);
        return;
    };
    for (name, value) in fields {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        flatten(&key, value.clone(), settings);
    }
}

/// Collects the rules that a configuration breaks, so that all are told at once.
#[derive(Default)]
struct Rules {
    broken: Vec<String>,
}

impl Rules {
    fn require(&mut self, holds: bool, rule: &str) {
        if !holds {
            self.broken.push(rule.to_owned());
        }
    }

    fn broken(&mut self, rule: String) {
        self.broken.push(rule);
    }

    fn positive(&mut self, key: &str, duration: Duration) {
        if duration.is_zero() {
            self.broken.push(format!("{key} must be more than 0"));
        }
    }
}

#[cfg(test)]
mod tests;
