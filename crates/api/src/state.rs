//! State shared by all handlers, and the dependencies that the caller of the crate supplies.

use std::{fmt, ops::Deref, sync::Arc};

use longhaul_domain::Prices;
use longhaul_files::Files;
use longhaul_guards::guarded_client::GuardedClient;
use longhaul_oidc::Provider;
use longhaul_queue::{QueueOptions, hints::LookSubscriber, producer::WakeupPublisher, watch::QueueWatch};
use longhaul_retrieval::OwnIndexes;
use longhaul_store::{
    Store, StoreError, executions::submit::Submitter, history::erasure::Erased, sessions::SessionLimit,
    tenants::api_keys::Pepper,
};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::{
    audit::AuditLog,
    catalog::Catalog,
    event_stream::EventStreams,
    fleet_watch::FleetWatch,
    key_cache::KeyCache,
    key_uses::KeyUses,
    known_models::{KnownOffers, KnownRuns},
    options::ApiOptions,
    platform_health::PlatformHealth,
    reads::Reads,
    remote::Remotes,
    routes::contract::{engine::Engine, options::ContractOptions},
    session_watch::SessionWatch,
};

/// Durable runs whose ids a process remembers.
const MAX_KNOWN_RUNS: usize = 10_000;

pub struct ApiDeps {
    pub store: Store,
    /// Group commit of submits, shared by the process.
    pub submitter: Submitter,
    pub prices: Prices,
    /// Search indexes of the tenants.
    pub indexes: OwnIndexes,
    pub files: Files,
    /// Secret that keys the hashes of API keys and signs cookies.
    pub pepper: Pepper,
    /// Provider at which people sign in; `None`: they sign in with API keys only.
    pub oidc: Option<Provider>,
    /// Sends wake-ups to workers and looks to observers.
    pub publisher: WakeupPublisher,
    /// Redis, for the wake-ups of workers over HTTP.
    pub redis: QueueOptions,
    /// Hints for event streams.
    pub looks: LookSubscriber,
    pub options: ApiOptions,
}

impl fmt::Debug for ApiDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiDeps").field("options", &self.options).finish_non_exhaustive()
    }
}

#[derive(Clone)]
pub(crate) struct ApiState(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) submitter: Submitter,
    pub(crate) prices: Prices,
    pub(crate) indexes: OwnIndexes,
    pub(crate) files: Files,
    pub(crate) pepper: Pepper,
    pub(crate) oidc: Option<Provider>,
    pub(crate) publisher: WakeupPublisher,
    pub(crate) queue: QueueWatch,
    pub(crate) options: ApiOptions,
    pub(crate) keys: KeyCache,
    pub(crate) key_uses: KeyUses,
    pub(crate) audit: AuditLog,
    pub(crate) catalog: Catalog,
    pub(crate) event_streams: EventStreams,
    pub(crate) session_watch: SessionWatch,
    session_limit: OnceCell<Option<SessionLimit>>,
    /// The other engine that runs the executions of `/v1/agent-executions`; `None`: this installation runs them.
    pub(crate) engine: Option<Engine>,
    /// Client of the answers to Slack; `None` if none can be made.
    pub(crate) answers: Option<GuardedClient>,
    _fleet: FleetWatch,
    _health: Option<PlatformHealth>,
    pub(crate) reads: Reads,
    pub(crate) wire_offers: KnownOffers,
    pub(crate) wire_runs: KnownRuns,
    pub(crate) remotes: Remotes,
    pub(crate) shutdown: CancellationToken,
}

impl Deref for ApiState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl ApiState {
    /// The limit of sessions that run at a time, stored with the first message that this process accepts.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn session_limit(&self) -> Result<Option<SessionLimit>, StoreError> {
        let max = self.options.max_running_sessions;
        self.session_limit.get_or_try_init(|| self.store.put_session_limit(max)).await.copied()
    }

    /// Deletes what Redis keeps of replies of erased executions.
    pub(crate) async fn forget_replies(&self, erased: Vec<Erased>) {
        let erased: Vec<_> = erased.into_iter().map(|execution| (execution.id, execution.turns)).collect();
        if !self.publisher.forget_replies(&erased).await {
            tracing::warn!("texts of erased replies stay in Redis until they expire");
        }
    }

    pub(crate) fn new(deps: ApiDeps, shutdown: CancellationToken) -> Self {
        let ApiDeps { store, submitter, prices, indexes, files, pepper, oidc, publisher, redis, looks, options } = deps;
        Self(Arc::new(Shared {
            keys: KeyCache::default(),
            key_uses: KeyUses::spawn(store.clone(), shutdown.clone()),
            audit: AuditLog::spawn(store.clone()),
            catalog: Catalog::new(store.clone(), &options),
            engine: engine(&options.contract),
            answers: GuardedClient::new(options.private_webhooks)
                .inspect_err(|error| tracing::error!(error = %error, "no client of Slack can be made"))
                .ok(),
            reads: Reads::new(store.options().max_connections),
            wire_offers: KnownOffers::default(),
            wire_runs: KnownRuns::new(MAX_KNOWN_RUNS),
            remotes: Remotes::new(store.clone(), redis, options.leases),
            _fleet: FleetWatch::spawn(store.clone(), options.worker_concurrency, shutdown.clone()),
            _health: PlatformHealth::spawn(&store, options.contract.health, &shutdown),
            session_limit: OnceCell::new(),
            session_watch: SessionWatch::spawn(store.clone(), shutdown.clone()),
            event_streams: EventStreams::spawn(store.clone(), looks, options.max_streams, shutdown.clone()),
            queue: QueueWatch::start(publisher.clone()),
            publisher,
            store,
            submitter,
            prices,
            indexes,
            files,
            pepper,
            oidc,
            options,
            shutdown,
        }))
    }
}

/// Builds the client of the other engine. A failure is logged, and the rest of the API is still served.
fn engine(options: &ContractOptions) -> Option<Engine> {
    let made = Engine::new(options.engine.clone()?);
    made.inspect_err(|error| tracing::error!(error = %error, "no client of the agent engine can be made")).ok()
}
