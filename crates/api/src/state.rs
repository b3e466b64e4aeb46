//! What every handler shares, and what the caller of the crate supplies.

use std::{fmt, ops::Deref, sync::Arc};

use axum::http::HeaderMap;
use futures::stream::BoxStream;
use longhaul_shared::{
    config::McpConfig,
    domain::{ExecutionId, Prices},
    retrieval::OwnIndexes,
    store::{Store, api_keys::Pepper, submit::Submitter},
};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::KeyCache,
    catalog::Catalog,
    hub::Hub,
    platform_health::PlatformHealth,
    routes::contract::{engine::Engine, options::ContractOptions},
};

/// How the API behaves.
#[derive(Debug, Clone)]
pub struct ApiOptions {
    /// Shows the status page without a key to browsers on this machine. For development.
    pub open_status_page: bool,
    /// Event streams (and held submits) that one process follows; beyond it 503.
    pub max_streams: usize,
    /// Connections that one process holds open; further ones wait to be accepted.
    pub max_connections: usize,
    /// Cookies of the status page are sent over TLS alone.
    pub secure_cookies: bool,
    /// What agents may say of tool servers.
    pub tool_servers: McpConfig,
    /// The agent-execution contract.
    pub contract: ContractOptions,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            open_status_page: false,
            max_streams: 4_096,
            max_connections: 10_000,
            secure_cookies: false,
            tool_servers: McpConfig::default(),
            contract: ContractOptions::default(),
        }
    }
}

/// A hint that executions changed. May be lost or doubled: streams read each second all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// These.
    At(Vec<ExecutionId>),
    /// Any: hints were lost.
    Everywhere,
}

/// Whether the queue's transport answers. It is reported and never required: Postgres is the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    /// It answers.
    Up,
    /// It does not; workers poll Postgres.
    Down,
    /// Nobody told us how to ask.
    Unknown,
}

/// Renders the metrics of the process.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;
/// Says that an execution of a queue became runnable. Must return at once.
pub type Wake = Arc<dyn Fn(&str, ExecutionId) + Send + Sync>;
/// Says that an execution changed and observers should look. Must return at once.
pub type Announce = Arc<dyn Fn(ExecutionId) + Send + Sync>;
/// The W3C trace context under which an execution is submitted.
pub type Traceparent = Arc<dyn Fn(&HeaderMap) -> Option<String> + Send + Sync>;
/// The transport's state, from memory. Must return at once.
pub type ReportQueue = Arc<dyn Fn() -> QueueState + Send + Sync>;

/// What the API calls out to. Every hook has a default that does nothing.
#[derive(Clone)]
pub struct Hooks {
    /// After a submit.
    pub wake: Wake,
    /// After a cancel.
    pub announce: Announce,
    /// At a submit.
    pub traceparent: Traceparent,
    /// For `/metrics`.
    pub metrics: RenderMetrics,
    /// For `/readyz`.
    pub queue: ReportQueue,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            wake: Arc::new(|_, _| {}),
            announce: Arc::new(|_| {}),
            traceparent: Arc::new(incoming_traceparent),
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

/// The `traceparent` header when it has the form of version 00.
fn incoming_traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hex = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (lengths == [2, 32, 16, 2] && is_hex && text.starts_with("00-")).then(|| text.to_owned())
}

/// What the API needs to run.
pub struct ApiDeps {
    /// Postgres.
    pub store: Store,
    /// The process's batch of submits.
    pub submitter: Submitter,
    /// What models cost.
    pub prices: Prices,
    /// What tenants search.
    pub indexes: OwnIndexes,
    /// Under which keys are hashed and cookies signed.
    pub pepper: Pepper,
    /// Hints for event streams.
    pub looks: BoxStream<'static, Look>,
    /// Calls out.
    pub hooks: Hooks,
    /// Behaviour.
    pub options: ApiOptions,
}

impl fmt::Debug for ApiDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiDeps").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Shared by all handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiState(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) submitter: Submitter,
    pub(crate) prices: Prices,
    pub(crate) indexes: OwnIndexes,
    pub(crate) pepper: Pepper,
    pub(crate) hooks: Hooks,
    pub(crate) options: ApiOptions,
    pub(crate) keys: KeyCache,
    pub(crate) catalog: Catalog,
    pub(crate) hub: Hub,
    /// Who runs what `/v1/agent-executions` takes, when it is not this installation.
    pub(crate) engine: Option<Engine>,
    _health: Option<PlatformHealth>,
    pub(crate) shutdown: CancellationToken,
}

impl Deref for ApiState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl ApiState {
    pub(crate) fn new(deps: ApiDeps, shutdown: CancellationToken) -> Self {
        let ApiDeps { store, submitter, prices, indexes, pepper, looks, hooks, options } = deps;
        Self(Arc::new(Shared {
            keys: KeyCache::default(),
            catalog: Catalog::new(store.clone()),
            engine: engine(&options.contract),
            _health: PlatformHealth::spawn(&store, options.contract.health, &shutdown),
            hub: Hub::spawn(store.clone(), looks, options.max_streams, shutdown.clone()),
            store,
            submitter,
            prices,
            indexes,
            pepper,
            hooks,
            options,
            shutdown,
        }))
    }
}

/// A client that cannot be made is an engine that cannot be reached: the rest of the API is served all the same.
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
