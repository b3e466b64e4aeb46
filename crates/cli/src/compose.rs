//! Builds the store, the queue and the options from the configuration, and runs the API and the worker on them.

use std::{future::Future, time::Duration};

use anyhow::Context as _;
use longhaul_api::{
    ApiDeps, ApiOptions, ContractOptions, EngineOptions, HealthOptions, LeaseTimes, OidcProvider, PageOptions,
    WireOptions,
};
use longhaul_config::{Config, WebSearchBackend};
use longhaul_files::Files;
use longhaul_guards::sealing::Sealer;
use longhaul_queue::{hints::LookSubscriber, producer::WakeupPublisher};
use longhaul_retrieval::OwnIndexes;
use longhaul_store::{Store, StoreError, StoreOptions, executions::submit::Submitter, tenants::api_keys::Pepper};
use longhaul_webhooks::{Channels, WebhookOptions, email::Mailer};
use longhaul_worker::WorkerBuilder;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::open_files;

/// Longest time a submit waits for Postgres before the API answers 503.
const SUBMIT_PATIENCE: Duration = Duration::from_secs(10);

/// File descriptors kept free for connections other than callers': Postgres, Redis, the contract's engine, and 512 to
/// webhooks.
const NOT_CALLERS: usize = 128 + 512;

/// Makes the Postgres store from the configuration, without connecting.
///
/// # Errors
/// The address is missing, or cannot be parsed.
pub fn store(config: &Config, application: &str) -> anyhow::Result<Store> {
    Ok(Store::open(StoreOptions::of_config(config, application)?)?)
}

/// # Errors
/// The pepper is not set.
pub fn pepper(config: &Config) -> anyhow::Result<Pepper> {
    Ok(Pepper::from(config.key_pepper()?))
}

/// Serves the API on `listener` until `shutdown`.
///
/// # Errors
/// A setting is missing, or the Postgres server may lose acknowledged writes.
pub async fn serve_api(
    config: &Config,
    store: Store,
    options: ApiOptions,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let queue = config.queue_options()?;
    let indexes = OwnIndexes::new(store.clone(), config.retrieval.clone()).context("no HTTP client can be made")?;
    let files = Files::new(store.clone(), &config.files)?;
    let judged = store.clone();
    let webhooks = WebhookOptions {
        allow_private: config.webhooks.allow_private_addresses,
        timeout: config.webhooks.timeout,
        patience: config.webhooks.disable_after,
        at_once: config.webhooks.at_once,
    };
    let mailer = mailer(config)?;
    let has_email = mailer.is_some();
    let channels = Channels { sealer: Sealer::new(&config.contract.secret_keys()?), mailer };
    let delivered = longhaul_webhooks::deliver(store.clone(), pepper(config)?, webhooks, channels, shutdown.clone());
    let deps = ApiDeps {
        indexes,
        files,
        submitter: Submitter::spawn(store.clone(), SUBMIT_PATIENCE),
        store,
        prices: config.llm.prices(),
        pepper: pepper(config)?,
        oidc: oidc(config)?,
        publisher: WakeupPublisher::start(&queue)?,
        redis: queue.clone(),
        looks: LookSubscriber::start(&queue)?,
        options: ApiOptions {
            max_connections: config.api.connections_max.min(open_files::raise().saturating_sub(NOT_CALLERS).max(1)),
            tool_servers: config.tools.mcp.clone(),
            web_search: config.tools.web_search.backend != WebSearchBackend::Off,
            has_sandbox: config.sandbox.url.is_some(),
            has_browser: config.browser.program.is_some(),
            contract: contract(config)?,
            max_running_sessions: config.sessions.max_running_per_agent,
            max_schedules: config.schedules.max_per_tenant,
            max_webhooks: config.webhooks.max_per_tenant,
            private_webhooks: config.webhooks.allow_private_addresses,
            has_email,
            max_running_projects: config.projects.max_running,
            authors_submit: config.approvals.authors,
            worker_concurrency: config.worker.concurrency as u64,
            leases: LeaseTimes { lease: config.worker.lease, renew: config.worker.renew },
            wires: WireOptions { models: config.wires.models, aliases: config.wires.aliases.clone() },
            page: PageOptions { trace_url: config.telemetry.trace_url.clone(), ..options.page },
            ..options
        },
    };
    let served = longhaul_api::serve(deps, listener, shutdown.clone());
    let served = async { tokio::join!(served, delivered).1 };
    tokio::select! {
        served = within_shutdown(served, shutdown, config.api.shutdown) => served?.map_err(anyhow::Error::msg),
        // Runs beside the server: the check waits while Postgres is down, and the API has to answer meanwhile.
        Err(error) = judge(&judged) => Err(error.into()),
    }
}

/// Fails if the Postgres server is unsafe, then waits for the schema and logs once if it is missing.
async fn judge(store: &Store) -> Result<(), StoreError> {
    store.refuse_unsafe_server().await?;
    store.await_schema().await
}

/// `None`: the installation sends no mail.
///
/// # Errors
/// A setting cannot be read, or refers to a variable that is not set.
fn mailer(config: &Config) -> anyhow::Result<Option<Mailer>> {
    let Some(options) = config.email.options()? else { return Ok(None) };
    Mailer::new(&options.smtp_url, &options.from, &options.link_url).map(Some).map_err(anyhow::Error::msg)
}

/// `None`: people sign in with API keys only.
///
/// # Errors
/// The secret refers to a variable that is not set, or no HTTP client can be made.
fn oidc(config: &Config) -> anyhow::Result<Option<OidcProvider>> {
    let Some(options) = config.oidc.options()? else { return Ok(None) };
    OidcProvider::new(options).map(Some).context("no HTTP client can be made")
}

/// The options of the agent-execution contract.
///
/// # Errors
/// A secret refers to a variable that is not set.
fn contract(config: &Config) -> anyhow::Result<ContractOptions> {
    let settings = &config.contract;
    let tokens = settings.tokens()?;
    let engine = settings.engine_url.clone().zip(tokens.first().cloned()).map(|(url, token)| EngineOptions {
        url,
        token,
        timeout: settings.engine_timeout,
        fallback: settings.fallback,
    });
    Ok(ContractOptions {
        tokens,
        is_enabled: settings.enabled,
        engine,
        org_id: settings.org_id.clone(),
        forced_profile: settings.forced_profile(),
        body_max_bytes: settings.body_max_bytes,
        sealer: Sealer::new(&settings.secret_keys()?),
        health: Some(HealthOptions { every: settings.health, timeout: settings.health_timeout }),
    })
}

/// Limits the time after `shutdown`, so that a client that never ends its request cannot keep the process alive.
async fn within_shutdown<T>(
    work: impl Future<Output = T>,
    shutdown: CancellationToken,
    limit: Duration,
) -> anyhow::Result<T> {
    let too_long = async {
        shutdown.cancelled().await;
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        done = work => Ok(done),
        () = too_long => anyhow::bail!("requests were still open {} s after the stop; they were cut", limit.as_secs()),
    }
}

/// Runs a stock worker for declarative definitions until it has drained after `shutdown`.
///
/// # Errors
/// A setting is missing, or the worker failed.
pub async fn run_worker(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    Ok(WorkerBuilder::new(config).build()?.run(shutdown).await?)
}
