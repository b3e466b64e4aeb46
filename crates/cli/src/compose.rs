//! Builds the store, the queue and the options from the configuration, and runs the API and the worker on them.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use futures::{FutureExt, StreamExt, stream, stream::BoxStream};
use longhaul_api::{
    ApiDeps, ApiOptions, ContractOptions, EngineOptions, HealthOptions, Hooks, Look, OidcProvider, PageOptions,
    QueueState, TextDelta,
};
use longhaul_files::Files;
use longhaul_queue::{
    QueueName,
    hints::{self, LookSubscriber},
    producer::WakeupPublisher,
};
use longhaul_retrieval::OwnIndexes;
use longhaul_shared::{
    config::{Config, WebSearchBackend},
    domain::ExecutionId,
    sealing::Sealer,
    telemetry::{metrics, trace},
};
use longhaul_store::{Store, StoreError, StoreOptions, executions::submit::Submitter, tenants::api_keys::Pepper};
use longhaul_webhooks::{Channels, WebhookOptions, email::Mailer};
use longhaul_worker::WorkerBuilder;
use tokio::{net::TcpListener, sync::broadcast, time::MissedTickBehavior};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::open_files;

/// Longest time a submit waits for Postgres before the API answers 503.
const SUBMIT_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the Redis probe; `/readyz` reports the last result.
const PROBE_EVERY: Duration = Duration::from_secs(2);

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
    let publisher = WakeupPublisher::start(&queue)?;
    let looks = looks(LookSubscriber::start(&queue)?);
    let (state, _probe) = watch_queue(publisher.clone());
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
        looks,
        hooks: hooks(&publisher, state),
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

fn hooks(publisher: &WakeupPublisher, state: Arc<AtomicU8>) -> Hooks {
    let (wakes, announces) = (publisher.clone(), publisher.clone());
    let (replies, forgets) = (publisher.clone(), publisher.clone());
    let incoming = Hooks::default().traceparent;
    Hooks {
        wake: Arc::new(move |queue, id| {
            match QueueName::new(queue) {
                Ok(queue) => {
                    // Records in the trace when the wake-up was published; the message itself carries no trace
                    // context.
                    let span = tracing::info_span!("wakeup", otel.kind = "producer", execution.id = %id, queue.name = queue.as_str());
                    span.in_scope(|| wakes.publish(&queue, id.0, 1));
                }
                // The API has validated the name, and the sweep finds the execution without a wake-up.
                Err(error) => tracing::warn!(%error, "no wake-up was sent"),
            }
        }),
        announce: Arc::new(move |id| announces.look([id.0])),
        reply: Arc::new(move |id| {
            let replies = replies.clone();
            async move { replies.reply_so_far(id.0).await.as_ref().map(piece) }.boxed()
        }),
        forget: Arc::new(move |executions| {
            let forgets = forgets.clone();
            async move {
                if !forgets.forget_replies(&executions).await {
                    tracing::warn!("texts of erased replies stay in Redis until they expire");
                }
            }
            .boxed()
        }),
        traceparent: Arc::new(move |headers| trace::current_traceparent().or_else(|| incoming(headers))),
        metrics: Arc::new(metrics::render),
        queue: Arc::new(move || match state.load(Ordering::Relaxed) {
            UP => QueueState::Up,
            DOWN => QueueState::Down,
            _ => QueueState::Unknown,
        }),
    }
}

const UNKNOWN: u8 = 0;
const UP: u8 = 1;
const DOWN: u8 = 2;

/// Probes Redis in the background, so that a readiness request does not have to.
fn watch_queue(publisher: WakeupPublisher) -> (Arc<AtomicU8>, AbortOnDropHandle<()>) {
    let state = Arc::new(AtomicU8::new(UNKNOWN));
    let told = Arc::clone(&state);
    let task = tokio::spawn(async move {
        // The depth itself is not used, only that Redis answered.
        let Ok(queue) = QueueName::new("default") else { return };
        let mut ticks = tokio::time::interval(PROBE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = publisher.depth(&queue).await;
            told.store(if answer.is_some() { UP } else { DOWN }, Ordering::Relaxed);
        }
    });
    (state, AbortOnDropHandle::new(task))
}

/// Converts the Redis look messages to the API's type. The subscription lives as long as the stream.
fn looks(subscriber: LookSubscriber) -> BoxStream<'static, Look> {
    let receiver = subscriber.subscribe();
    stream::unfold((subscriber, receiver), |(subscriber, mut receiver)| async move {
        let look = match receiver.recv().await {
            Ok(hints::Look::At(ids)) => Look::At(ids.iter().copied().map(ExecutionId).collect()),
            Ok(hints::Look::Text(deltas)) => Look::Text(deltas.iter().map(piece).collect()),
            Ok(hints::Look::AtEverything) | Err(broadcast::error::RecvError::Lagged(_)) => Look::Everywhere,
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        Some((look, (subscriber, receiver)))
    })
    .boxed()
}

fn piece(delta: &hints::TextDelta) -> TextDelta {
    TextDelta {
        execution: ExecutionId(delta.execution),
        turn: delta.turn,
        offset: delta.offset,
        text: delta.text.clone(),
    }
}

/// Runs a stock worker for declarative definitions until it has drained after `shutdown`.
///
/// # Errors
/// A setting is missing, or the worker failed.
pub async fn run_worker(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    Ok(WorkerBuilder::new(config).build()?.run(shutdown).await?)
}
