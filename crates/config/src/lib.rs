//! The configuration: every setting of every role, read once at start. Only this module reads the environment.
//!
//! Layers, later ones win: the embedded `deploy/config.default.toml`, a file, plain variables (`DATABASE_URL`, …),
//! `LONGHAUL__SECTION__KEY`, command-line flags.
//!
//! Invariants: an unknown setting is refused and its source named; cross-field rules are checked here, and a
//! process that breaks one does not start; neither `Debug` nor [`Config::settings`] shows secrets. Settings that
//! only some roles require (such as the database URL) are read through accessors whose error says how to set them,
//! so other commands run without them.

mod api;
mod approvals;
mod browser;
mod client;
mod contract;
mod database;
mod email;
mod files;
mod layers;
mod llm;
mod memory;
mod oidc;
mod projects;
mod redis;
mod retrieval;
mod sandbox;
mod schedules;
mod secret;
mod sessions;
mod sub_agents;
mod telemetry;
mod tools;
mod units;
mod webhooks;
mod wires;
mod worker;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

pub use self::{
    api::ApiConfig,
    approvals::ApprovalsConfig,
    browser::BrowserConfig,
    client::ClientConfig,
    contract::ContractConfig,
    database::DatabaseConfig,
    email::{EmailConfig, EmailOptions},
    files::{FilesConfig, S3Config},
    llm::{
        BudgetConfig, HealthConfig, LimitConfig, LlmConfig, PriceConfig, PromptCacheMode, ProviderConfig, ProviderKind,
    },
    memory::MemoryConfig,
    oidc::{OidcConfig, OidcOptions, OidcRoles},
    projects::ProjectsConfig,
    redis::{QueueOptions, RedisConfig},
    retrieval::{EmbeddingsConfig, RetrievalConfig, VectorStoreKind},
    sandbox::{SandboxConfig, SandboxConfinement},
    schedules::SchedulesConfig,
    secret::{host_name, inherited_environment, resolve_secret, reveal},
    sessions::SessionsConfig,
    sub_agents::SubAgentsConfig,
    telemetry::TelemetryConfig,
    tools::{AllowedAgents, FetchUrlConfig, McpConfig, RefusedServer, ToolsConfig, WebSearchBackend, WebSearchConfig},
    webhooks::WebhooksConfig,
    wires::{WireModels, WiresConfig},
    worker::{QuarantineConfig, WorkerConfig},
};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Config {
    pub database: DatabaseConfig,
    pub redis: RedisConfig,
    pub api: ApiConfig,
    pub approvals: ApprovalsConfig,
    pub worker: WorkerConfig,
    pub sessions: SessionsConfig,
    pub schedules: SchedulesConfig,
    pub sub_agents: SubAgentsConfig,
    pub memory: MemoryConfig,
    pub projects: ProjectsConfig,
    pub wires: WiresConfig,
    pub webhooks: WebhooksConfig,
    pub email: EmailConfig,
    pub oidc: OidcConfig,
    pub llm: LlmConfig,
    pub tools: ToolsConfig,
    pub retrieval: RetrievalConfig,
    pub files: FilesConfig,
    pub sandbox: SandboxConfig,
    pub browser: BrowserConfig,
    pub telemetry: TelemetryConfig,
    pub contract: ContractConfig,
    pub client: ClientConfig,
}

/// Sources of settings besides the defaults. Has no `Debug`, because the environment contains secrets.
#[derive(Clone, Default)]
pub struct Sources {
    /// Path given by `--config`. If absent, `LONGHAUL_CONFIG` of `environment`.
    pub file: Option<PathBuf>,
    pub environment: BTreeMap<String, String>,
    /// Command-line flags as (key, value): `("api.listen", "0.0.0.0:80")`.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// Combines a file and flags with the environment of this process.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        // No setting is in a variable that is not Unicode, and `vars` panics on one.
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { file, environment: environment.collect(), flags }
    }
}

/// Reason why a process does not start.
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
    /// Reads, merges and checks all layers.
    ///
    /// # Errors
    /// [`ConfigError`] naming the unknown setting and its source, or every broken rule.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut config: Self = layers::merge(sources)?.try_deserialize()?;
        config.llm.settle_default();
        config.check()?;
        Ok(config)
    }

    /// Returns every setting by its key, as JSON, secrets redacted. Shown by `config check`.
    pub fn settings(&self) -> BTreeMap<String, serde_json::Value> {
        let mut settings = BTreeMap::new();
        // Cannot fail: all map keys are strings.
        flatten("", serde_json::to_value(self).unwrap_or_default(), &mut settings);
        settings
    }

    /// # Errors
    /// [`ConfigError::Missing`] or [`ConfigError::Reference`].
    pub fn database_url(&self) -> Result<SecretString, ConfigError> {
        required(&self.database.url, "database.url", "DATABASE_URL")
    }

    /// # Errors
    /// [`ConfigError::Missing`] or [`ConfigError::Reference`] if there is no Redis URL.
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
        // Exhaustive destructuring, so that a new section cannot be left unchecked.
        let Self {
            database,
            redis,
            api,
            approvals: _,
            worker,
            sessions,
            schedules,
            sub_agents,
            memory,
            projects,
            wires,
            webhooks,
            email,
            oidc,
            llm,
            tools,
            retrieval,
            files,
            sandbox,
            browser,
            telemetry,
            contract,
            client,
        } = self;
        let mut rules = Rules::default();
        database.check(&mut rules);
        redis.check(&mut rules);
        api.check(&mut rules);
        worker.check(&mut rules);
        sessions.check(&mut rules);
        schedules.check(&mut rules);
        sub_agents.check(&mut rules);
        memory.check(&mut rules);
        projects.check(&mut rules);
        wires.check(&mut rules);
        webhooks.check(&mut rules);
        email.check(&mut rules);
        oidc.check(&mut rules);
        llm.check(&mut rules);
        tools.check(&mut rules);
        retrieval.check(&mut rules);
        files.check(&mut rules);
        sandbox.check(&mut rules);
        browser.check(&mut rules);
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

/// Collects all broken rules, so that one error reports them together.
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
