//! State shared by all handlers, and the dependencies that the caller of the crate supplies.

use std::{fmt, ops::Deref, sync::Arc};

use axum::http::HeaderMap;
use futures::{future::BoxFuture, stream::BoxStream};
use longhaul_files::Files;
use longhaul_oidc::Provider;
use longhaul_retrieval::OwnIndexes;
use longhaul_shared::{
    domain::{ExecutionId, Prices},
    guarded_client::GuardedClient,
};
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
    looks::{Look, TextDelta},
    options::ApiOptions,
    platform_health::PlatformHealth,
    reads::Reads,
    routes::contract::{engine::Engine, options::ContractOptions},
    session_watch::SessionWatch,
};

/// State of the queue's transport. Reported, never required: Postgres is the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    Up,
    /// The transport does not answer; workers poll Postgres.
    Down,
    /// No hook reports the state.
    Unknown,
}

/// Renders the process's metrics as Prometheus text.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;
/// Signals that an execution of a queue became runnable. Must not block.
pub type Wake = Arc<dyn Fn(&str, ExecutionId) + Send + Sync>;
/// Signals that an execution changed and observers should read it. Must not block.
pub type Announce = Arc<dyn Fn(ExecutionId) + Send + Sync>;
/// Returns the W3C trace context under which an execution is submitted.
pub type Traceparent = Arc<dyn Fn(&HeaderMap) -> Option<String> + Send + Sync>;
/// Returns the text that the model has written so far of an execution's turn, at offset 0; `None` if it is gone.
pub type ReadReply = Arc<dyn Fn(ExecutionId) -> BoxFuture<'static, Option<TextDelta>> + Send + Sync>;
/// Deletes the text kept of replies of these executions, each with the number of its last recorded turn.
pub type ForgetReplies = Arc<dyn Fn(Vec<(ExecutionId, u32)>) -> BoxFuture<'static, ()> + Send + Sync>;
/// Returns the transport's state from memory. Must not block.
pub type ReportQueue = Arc<dyn Fn() -> QueueState + Send + Sync>;

/// Callbacks of the API. By default they do nothing, except `traceparent`, which reads the request header.
#[derive(Clone)]
pub struct Hooks {
    /// Called for each execution that a request made runnable.
    pub wake: Wake,
    /// Called for each existing execution that a request changed.
    pub announce: Announce,
    /// Called at each submit.
    pub traceparent: Traceparent,
    /// Reads the text so far of the reply under way.
    pub reply: ReadReply,
    /// Called for executions whose texts were erased.
    pub forget: ForgetReplies,
    pub metrics: RenderMetrics,
    pub queue: ReportQueue,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            wake: Arc::new(|_, _| {}),
            announce: Arc::new(|_| {}),
            traceparent: Arc::new(incoming_traceparent),
            reply: Arc::new(|_| Box::pin(std::future::ready(None))),
            forget: Arc::new(|_| Box::pin(std::future::ready(()))),
            metrics: Arc::new(String::new),
            queue: Arc::new(|| QueueState::Unknown),
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// The `traceparent` header, if it is well-formed version 00.
fn incoming_traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hex = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (lengths == [2, 32, 16, 2] && is_hex && text.starts_with("00-")).then(|| text.to_owned())
}

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
    /// Hints for event streams.
    pub looks: BoxStream<'static, Look>,
    pub hooks: Hooks,
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
    pub(crate) hooks: Hooks,
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

    /// Deletes what the transport keeps of replies of erased executions.
    pub(crate) async fn forget_replies(&self, erased: Vec<Erased>) {
        (self.hooks.forget)(erased.into_iter().map(|execution| (execution.id, execution.turns)).collect()).await;
    }

    pub(crate) fn new(deps: ApiDeps, shutdown: CancellationToken) -> Self {
        let ApiDeps { store, submitter, prices, indexes, files, pepper, oidc, looks, hooks, options } = deps;
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
            _fleet: FleetWatch::spawn(store.clone(), options.worker_concurrency, shutdown.clone()),
            _health: PlatformHealth::spawn(&store, options.contract.health, &shutdown),
            session_limit: OnceCell::new(),
            session_watch: SessionWatch::spawn(store.clone(), shutdown.clone()),
            event_streams: EventStreams::spawn(store.clone(), looks, options.max_streams, shutdown.clone()),
            store,
            submitter,
            prices,
            indexes,
            files,
            pepper,
            oidc,
            hooks,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wellformed_traceparent_is_kept() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            incoming_traceparent(&headers)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good).as_deref(), Some(good));
        for bad in ["", "00-zz-b7-01", &good.replace("00-", "ff-"), &good.to_uppercase()] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
