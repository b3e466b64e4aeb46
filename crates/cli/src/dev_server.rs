//! `longhaul dev` and `longhaul demo`: API, worker and page in one process, on a private PostgreSQL and Redis.
//!
//! SQL, queue and roles are those of production; only the servers are started here. Invariants: data and keys of an
//! earlier start are there at the next one; the addresses and keys are written to `env` in the data directory for the
//! other commands; everything stops with the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use longhaul_api::{ApiOptions, PageOptions};
use longhaul_command::env_file;
use longhaul_config::{Config, ContractConfig, ProviderKind, Sources};
use longhaul_domain::TenantId;
use longhaul_embedded::{Host, PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions, preflight};
use longhaul_guards::sealing::Sealer;
use longhaul_llm::scripted;
use longhaul_store::{
    Store,
    tenants::api_keys::{ApiKey, KeyState, Pepper, Scope},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    commands::apply::{self, Applied},
    compose,
    spec_files::SpecFiles,
};

/// Tenant of the development key, and name of the key.
const DEV: &str = "dev";
/// Drain limit, in seconds: short because a developer waits for it. Unfinished executions continue at the next start.
const DRAIN_SECONDS: &str = "5";
/// Value of `tools.mcp.stdio`: agents of any tenant may start tool servers, since the developer owns the machine.
const STDIO: &str = "any";
/// Plain variables of model providers.
const MODEL_VARIABLES: [&str; 5] =
    ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LONGHAUL_LLM_URL", "LONGHAUL_LLM_API_KEY", "LONGHAUL_LLM_MODEL"];

#[derive(Debug)]
pub struct DevServerOptions {
    /// Data directory of the servers and of `env`.
    pub data_dir: PathBuf,
    /// Address of the API.
    pub listen: SocketAddr,
    /// Agents, definitions and platform documents to apply at the start.
    pub files: SpecFiles,
}

/// The running servers and roles.
pub struct DevServer {
    /// The API's URL.
    pub url: String,
    /// A key of the tenant `dev` with every scope.
    pub key: SecretString,
    /// The result of applying the files at the start.
    pub applied: Vec<Applied>,
    /// The configuration of the roles.
    pub config: Config,
    env_path: PathBuf,
    roles: JoinSet<anyhow::Result<()>>,
    shutdown: CancellationToken,
    store: Store,
    postgres: PrivatePostgres,
    redis: PrivateRedis,
}

impl DevServer {
    /// Starts the servers and the API, which ends when `shutdown` is cancelled.
    ///
    /// # Errors
    /// A server is missing or does not start, the address is in use, or a file cannot be applied.
    pub async fn start(
        mut options: DevServerOptions,
        mut sources: Sources,
        shutdown: CancellationToken,
    ) -> anyhow::Result<Self> {
        preflight(&Host::detect())?;
        // Bind before starting the servers: an address in use then fails at once.
        let listener =
            TcpListener::bind(options.listen).await.with_context(|| format!("cannot listen on {}", options.listen))?;
        let url = format!("http://{}", listener.local_addr()?);
        make_data_dir(&options.data_dir)?;
        let (postgres, redis) = tokio::try_join!(
            PrivatePostgres::start(PostgresOptions::dev(options.data_dir.join("postgres"))),
            PrivateRedis::start(RedisOptions::dev(options.data_dir.join("redis"))),
        )?;
        let env_path = options.data_dir.join(env_file::NAME);
        let known = env_file::read(&env_path);
        // Reuse the first start's pepper: another one would invalidate every key.
        let pepper = known.get("LONGHAUL_API_KEY_PEPPER").cloned().unwrap_or_else(random_secret);
        sources.flags.extend(settings(&postgres, &redis, &pepper, &url));
        let kept = |name: &str| known.get(name).cloned().unwrap_or_else(random_secret);
        let (token, secret_key) = (kept("AGENT_ENGINE_SERVICE_TOKEN"), kept("LONGHAUL_SECRET_KEYS"));
        let given = Config::load(&sources)?;
        sources.flags.extend(unset_settings(&given, &token, &secret_key));
        let config = Config::load(&sources)?;

        let store = compose::store(&config, "longhaul-dev")?;
        store.migrate().await?;
        store.put_agent_definition().await?;
        if let Ok(own) = std::env::current_exe() {
            options.files.start_own_tools_with(&own);
        }
        // The same tenant as `longhaul apply` with the development key: the newest version applies, from either
        // source.
        let tenant = store.ensure_tenant(DEV, None).await?.id;
        let applied =
            apply::directly(&store, Some(tenant), &options.files, &Sealer::new(&config.contract.secret_keys()?))
                .await?;
        let key = development_key(&store, tenant, &pepper, known.get("LONGHAUL_API_KEY").map(String::as_str)).await?;
        let models = models(&sources, &config);
        let mut written = vec![
            ("DATABASE_URL", postgres.url()),
            ("REDIS_URL", redis.url()),
            ("LONGHAUL_API_KEY_PEPPER", &pepper),
            ("LONGHAUL_URL", &url),
            ("LONGHAUL_API_KEY", key.expose_secret()),
            ("AGENT_ENGINE_SERVICE_TOKEN", shown(&config.contract.service_tokens, &token)),
            ("LONGHAUL_SECRET_KEYS", shown(&config.contract.secret_keys, &secret_key)),
            // For workers started from another shell.
            ("LONGHAUL__TOOLS__MCP__STDIO", STDIO),
        ];
        written.extend(models.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        env_file::write(&env_path, &written).with_context(|| env_path.display().to_string())?;

        let mut roles = JoinSet::new();
        let page = PageOptions { local_key: Some(key.clone()), ..PageOptions::default() };
        let open = ApiOptions { page, max_streams: config.api.streams_max, ..ApiOptions::default() };
        let (api_config, api_store, api_shutdown) = (config.clone(), store.clone(), shutdown.clone());
        roles.spawn(async move {
            let served = Box::pin(compose::serve_api(&api_config, api_store, open, listener, api_shutdown)).await;
            served.context("the api ended")
        });
        Ok(Self { url, key, applied, config, env_path, roles, shutdown, store, postgres, redis })
    }

    /// Starts a worker in this process, which ends with the API.
    pub fn start_worker(&mut self) {
        let (config, shutdown) = (self.config.clone(), self.shutdown.clone());
        self.roles.spawn(async move {
            // A drained worker is followed by another, as under a supervisor.
            while !shutdown.is_cancelled() {
                compose::run_worker(config.clone(), shutdown.clone()).await.context("the worker ended")?;
            }
            Ok(())
        });
    }

    /// Waits until a role or a server ends; after `shutdown`, until both roles have ended.
    ///
    /// # Errors
    /// A role failed, or a role or a server ended before `shutdown`.
    pub async fn ended(&mut self, shutdown: &CancellationToken) -> anyhow::Result<()> {
        loop {
            let ended = tokio::select! {
                ended = self.roles.join_next() => ended,
                () = self.postgres.ended() => anyhow::bail!("the private PostgreSQL ended; see {}",
                    self.postgres.log().display()),
                () = self.redis.ended() => anyhow::bail!("the private Redis ended; see {}", self.redis.log().display()),
            };
            match ended {
                None => return Ok(()),
                Some(ended) => ended??,
            }
            anyhow::ensure!(shutdown.is_cancelled(), "a role ended unasked");
        }
    }

    /// Stops the roles, then the servers.
    ///
    /// # Errors
    /// A server does not stop.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.roles.shutdown().await;
        self.store.close().await;
        self.redis.stop().await?;
        self.postgres.stop().await?;
        Ok(())
    }

    /// Path of the env file with addresses and keys, for other shells.
    #[must_use]
    pub fn env_path(&self) -> &Path {
        &self.env_path
    }

    #[must_use]
    pub fn database_url(&self) -> &str {
        self.postgres.url()
    }

    /// Describes the model of agents that name none.
    #[must_use]
    pub fn model(&self) -> String {
        let name = &self.config.llm.default_provider;
        match self.config.llm.providers.get(name) {
            Some(provider) if provider.kind != ProviderKind::Scripted => {
                let model = provider.default_model.as_deref().unwrap_or("default");
                format!("{model} of {name} at {}", provider.base_url.as_deref().unwrap_or_default())
            }
            Some(_) | None => {
                "scripted: computed from the input, no model is asked (set OPENAI_API_KEY, ANTHROPIC_API_KEY \
                               or LONGHAUL_LLM_URL for a real one)"
                    .to_owned()
            }
        }
    }
}

/// Reads the files in `asked`; without any, `./agents` and `./definitions` if they exist.
///
/// # Errors
/// A file is invalid.
pub fn files(asked: &[PathBuf]) -> anyhow::Result<SpecFiles> {
    if asked.is_empty() {
        let here = ["agents", "definitions"].map(PathBuf::from);
        let here: Vec<PathBuf> = here.into_iter().filter(|path| path.is_dir()).collect();
        return Ok(SpecFiles::read_any(&here).sound()?);
    }
    Ok(SpecFiles::read(asked).sound()?)
}

fn settings(postgres: &PrivatePostgres, redis: &PrivateRedis, pepper: &str, url: &str) -> Vec<(String, String)> {
    let settings = [
        ("database.url", postgres.url()),
        ("redis.url", redis.url()),
        ("api.key_pepper", pepper),
        ("client.url", url),
        ("worker.drain_seconds", DRAIN_SECONDS),
        ("tools.mcp.stdio", STDIO),
    ];
    settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Variables by which another worker asks the same models: those of this process, its configuration file, and the
/// default provider.
fn models(sources: &Sources, config: &Config) -> BTreeMap<String, String> {
    let keys = config.llm.providers.values().filter_map(|provider| provider.api_key.as_ref());
    let named: BTreeSet<&str> = keys.filter_map(|key| key.expose_secret().strip_prefix("env://")).collect();
    let is_of_models =
        |name: &str| MODEL_VARIABLES.contains(&name) || named.contains(name) || name.starts_with("LONGHAUL__LLM__");
    let given = sources.environment.iter().filter(|(name, value)| is_of_models(name) && !value.is_empty());
    let mut variables: BTreeMap<String, String> = given.map(|(name, value)| (name.clone(), value.clone())).collect();
    let file = sources.file.clone().or_else(|| sources.environment.get("LONGHAUL_CONFIG").map(PathBuf::from));
    if let Some(file) = file.and_then(|file| file.canonicalize().ok()) {
        variables.insert("LONGHAUL_CONFIG".into(), file.display().to_string());
    }
    variables.insert("LONGHAUL__LLM__DEFAULT_PROVIDER".into(), config.llm.default_provider.clone());
    variables
}

/// Settings that the configuration leaves unset: the scripted model, and of the agent-execution contract service token,
/// key for secrets and the organisation of the applied agents.
fn unset_settings(
    Config { llm, contract: given, .. }: &Config,
    token: &str,
    secret_key: &str,
) -> Vec<(String, String)> {
    let missing = [
        ("llm.default_provider", scripted::NAME, llm.default_provider.is_empty()),
        ("contract.service_tokens", token, given.service_tokens.is_none()),
        ("contract.secret_keys", secret_key, given.secret_keys.is_none()),
        ("contract.org_id", DEV, given.org_id == ContractConfig::DEFAULT_ORG),
    ];
    let missing = missing.into_iter().filter(|(_, _, is_missing)| *is_missing);
    missing.map(|(key, value, _)| (key.to_owned(), value.to_owned())).collect()
}

/// The configured secret, else the generated one.
fn shown<'a>(set: &'a Option<SecretString>, made: &'a str) -> &'a str {
    set.as_ref().map_or(made, ExposeSecret::expose_secret)
}

fn make_data_dir(dir: &Path) -> anyhow::Result<()> {
    // 0755: when started as root, the servers run as another user below it. The files in it protect themselves.
    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).with_context(|| dir.display().to_string())
}

/// A secret of 244 random bits.
fn random_secret() -> String {
    [(); 2].map(|()| uuid::Uuid::new_v4().simple().to_string()).concat()
}

async fn development_key(
    store: &Store,
    tenant: TenantId,
    pepper: &str,
    known: Option<&str>,
) -> anyhow::Result<SecretString> {
    let pepper = Pepper::from(SecretString::from(pepper.to_owned()));
    if let Some(known) = known {
        let found = store.find_api_key(&pepper.key_hash(known)).await?;
        // A key of an older release lacks the scopes that are new.
        let has_all = |key: &ApiKey| Scope::ALL.iter().all(|scope| key.scopes.contains(scope));
        if found.is_some_and(|key| key.state == KeyState::Active && has_all(&key)) {
            return Ok(known.to_owned().into());
        }
    }
    Ok(store.issue_api_key(tenant, DEV, Scope::ALL, &pepper).await?.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_worker_gets_the_models_of_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("longhaul.toml");
        fs::write(&file, "[llm.providers.custom]\napi_key = 'env://HOUSE_KEY'\n").unwrap();
        let given = [
            ("LONGHAUL_LLM_URL", "http://127.0.0.1:9/v1"),
            ("LONGHAUL_LLM_MODEL", "large"),
            ("HOUSE_KEY", "k"),
            ("LONGHAUL__LLM__HEALTH__PROBE_SECONDS", "3"),
            ("SOMETHING_ELSE", "secret"),
        ];
        let environment = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let sources = Sources { file: Some(file.clone()), environment, flags: Vec::new() };
        let variables = models(&sources, &Config::load(&sources).unwrap());
        for (name, value) in &given[..4] {
            assert_eq!(variables.get(*name).map(String::as_str), Some(*value), "{name}");
        }
        assert!(!variables.contains_key("SOMETHING_ELSE"));
        assert_eq!(variables["LONGHAUL__LLM__DEFAULT_PROVIDER"], "custom");
        assert_eq!(variables["LONGHAUL_CONFIG"], file.canonicalize().unwrap().display().to_string());
    }
}
