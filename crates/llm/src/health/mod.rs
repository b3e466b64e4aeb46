//! Admission of model calls: circuit breakers and limits shared by the fleet (docs/design/health.md).
//!
//! Invariants:
//! - A call to a healthy endpoint of which no limit is known makes no request. It is held back at most for the first
//!   seconds (`ramp.rs`).
//! - This process's state of an endpoint is at most `REFRESH_EVERY` old, and only ever a reason to ask Postgres, which
//!   decides.
//! - Waits of up to `HOLD` are held in memory; for a longer wait the execution parks and holds nothing.
//! - A call releases its slot however it ends, even if it was never made: a leaked slot stays taken until the call
//!   counts as lost (`LOST_AFTER_CLOCKS`).
//! - No bookkeeping stands between the answer of a call and its commit (`bookkeeping.rs`).

mod bookkeeping;
mod call_slot;
mod endpoint;
mod ramp;
mod refresh;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
pub(crate) use endpoint::EndpointSettings;
pub use endpoint::{Call, Endpoint};
use longhaul_config::{HealthConfig, LlmConfig};
use longhaul_domain::WaitReason;
use longhaul_queue::{
    model_calls::{LearnedLimits, ModelCalls, RefusedCall},
    producer::WakeupPublisher,
};
use longhaul_sdk::spec::ModelSpec;
use longhaul_store::{
    Store, StoreError,
    database::retry::patiently,
    providers::{
        breakers::{Asking, MayAsk, ModelKey},
        failures::{CallFailure, EndpointFailure, FailedCall, FailureCounter, Pauses},
        limits::{RateLine, Refusal, RefusalCounter},
    },
};
use longhaul_telemetry::metrics;
use parking_lot::Mutex;
pub use refresh::{REFRESH_EVERY, watch};
use uuid::Uuid;

use super::{ChatModel, ModelError, Models};
use bookkeeping::Books;
use call_slot::CallSlot;

/// Longest wait held in memory.
const HOLD: Duration = Duration::from_secs(2);
/// Maximum endpoints in memory: agents name models freely.
const MAX_ENDPOINTS: usize = 10_000;
/// Minimum pause of an endpoint after a 429.
const MIN_SHUT: Duration = Duration::from_millis(100);

/// An agent's model, or one of its fallbacks.
pub struct Route {
    pub spec: ModelSpec,
    pub model: Arc<dyn ChatModel>,
    pub endpoint: Arc<Endpoint>,
}

/// Result of a request for admission.
#[derive(Debug)]
pub enum Admission {
    /// Admitted, while this is kept.
    Call(Arc<Call>),
    /// The execution must park.
    Wait(Wait),
    /// The maximum wait is over for every route.
    GiveUp {
        /// True if the quota is exhausted; otherwise the endpoint is down or at its limits.
        is_quota: bool,
    },
}

/// Wait of a parked execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// `provider_down` or `rate_limit`.
    pub reason: WaitReason,
    /// End of the wait, by the database's clock.
    pub until: DateTime<Utc>,
    /// Wake counter, read when the execution joined the waiters.
    pub wake_seq: i32,
    /// Index of the route it waits for.
    pub route: usize,
}

/// This process's state of all endpoints.
pub struct Health {
    store: Store,
    calls: ModelCalls,
    failures: FailureCounter,
    refusals: RefusalCounter,
    line: RateLine,
    publisher: WakeupPublisher,
    config: HealthConfig,
    settings: HashMap<String, EndpointSettings>,
    endpoints: Mutex<HashMap<ModelKey, Arc<Endpoint>>>,
    clock: Mutex<Option<(DateTime<Utc>, Instant)>>,
    workers: std::sync::atomic::AtomicU32,
    books: Books,
}

/// Handling of a 429 or an overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterThrottle {
    /// The call is repeated when the endpoint takes calls again, without a retry.
    Again,
    /// The retry table of failure classes applies.
    Fail,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Health {
    /// Knows no endpoint yet. `config` has the limits of endpoints and the pauses of breakers.
    pub fn new(store: Store, calls: ModelCalls, publisher: WakeupPublisher, config: &LlmConfig) -> Self {
        let settings = config.providers.iter().map(|(name, of)| (name.clone(), EndpointSettings::from(of))).collect();
        let pauses = Pauses { first: config.health.probe, longest: config.health.probe_max };
        Self {
            failures: FailureCounter::spawn(store.clone(), pauses),
            refusals: RefusalCounter::spawn(store.clone()),
            line: RateLine::spawn(store.clone()),
            store,
            calls,
            publisher,
            config: config.health.clone(),
            settings,
            endpoints: Mutex::default(),
            clock: Mutex::default(),
            workers: 1.into(),
            books: Books::default(),
        }
    }

    /// The routes of an agent, its own model first, without those to providers that this worker does not have.
    ///
    /// # Errors
    /// [`ModelError::UnknownProvider`]: none is left.
    pub fn routes(&self, models: &Models, spec: &ModelSpec) -> Result<Vec<Route>, ModelError> {
        let route = |spec: ModelSpec| {
            let model = models.get(&spec)?.clone();
            let key = ModelKey {
                provider: model.provider().to_owned(),
                model: model.model_name(&spec).to_owned(),
                key: models.fingerprint(&spec).to_owned(),
            };
            Ok(Route { endpoint: self.endpoint(key), spec, model })
        };
        let mut unknown = None;
        let mut routes = Vec::new();
        for spec in spec.routes() {
            match route(spec) {
                Ok(route) => routes.push(route),
                Err(error) => unknown = unknown.or(Some(error)),
            }
        }
        match unknown {
            Some(error) if routes.is_empty() => Err(error),
            _ => Ok(routes),
        }
    }

    /// A route to a model outside the worker's configuration.
    pub fn route(&self, spec: ModelSpec, model: Arc<dyn ChatModel>, fingerprint: String) -> Route {
        let (provider, name) = (model.provider().to_owned(), model.model_name(&spec).to_owned());
        Route { endpoint: self.endpoint(ModelKey { provider, model: name, key: fingerprint }), spec, model }
    }

    fn endpoint(&self, key: ModelKey) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock();
        if let Some(endpoint) = endpoints.get(&key) {
            return endpoint.clone();
        }
        if endpoints.len() >= MAX_ENDPOINTS {
            endpoints.retain(|_, endpoint| Arc::strong_count(endpoint) > 1);
        }
        let limits = self.settings.get(&key.provider);
        let endpoint = Arc::new(Endpoint::new(key.clone(), limits));
        endpoints.insert(key, endpoint.clone());
        endpoint
    }

    /// Requests admission for a call of about `tokens` tokens, trying the routes in order.
    ///
    /// # Errors
    /// The lease is lost, or the store refused the statement.
    pub async fn admit(
        self: &Arc<Self>,
        routes: &[Route],
        asking: Asking,
        tokens: u64,
    ) -> Result<Admission, StoreError> {
        let (mut has_waited, mut is_quota) = (false, false);
        for (index, route) in routes.iter().enumerate() {
            let is_last = index + 1 == routes.len();
            let patience = self.patience(is_last);
            let endpoint = &route.endpoint;
            if endpoint.may_be_down() {
                let asked = patiently(self.store.trouble(), || {
                    self.store.ask_provider(asking, &endpoint.key, patience, is_last)
                });
                match asked.await? {
                    MayAsk::Yes => {}
                    MayAsk::Tell => has_waited = true,
                    MayAsk::Wait { until, wake_seq } => {
                        let reason = WaitReason::ProviderDown;
                        return Ok(Admission::Wait(Wait { reason, until, wake_seq, route: index }));
                    }
                    MayAsk::GiveUp { is_quota: spent } => {
                        (has_waited, is_quota) = (true, is_quota || spent);
                        continue;
                    }
                }
            }
            match self.request_slot(endpoint, asking, tokens, patience).await? {
                CallSlot::Free { under_way, counted, was_parked } => {
                    let tells = has_waited || was_parked;
                    let call = Call::new(self.clone(), under_way, asking, index, (counted, tokens), tells);
                    return Ok(Admission::Call(Arc::new(call)));
                }
                CallSlot::Later { until, wake_seq } => {
                    let reason = WaitReason::RateLimit;
                    return Ok(Admission::Wait(Wait { reason, until, wake_seq, route: index }));
                }
                CallSlot::None => has_waited = true,
            }
        }
        Ok(Admission::GiveUp { is_quota })
    }

    fn patience(&self, is_last: bool) -> Duration {
        if is_last { self.config.max_wait } else { self.config.fallback_after }
    }

    /// Counts a failed call. Returns a wait if the endpoint is down; `None` if the retry table of failure classes
    /// applies. Waits for Postgres as long as it takes: an uncounted failure would not be refunded.
    pub async fn failed(&self, call: &Call, error: &ModelError, routes: usize) -> Option<Wait> {
        let is_quota = matches!(error.root(), ModelError::QuotaExhausted { .. });
        if !is_quota && !is_outage(error) {
            return None;
        }
        let code = error.code();
        let endpoint = &call.endpoint;
        let failure = CallFailure {
            asking: call.asking,
            key: endpoint.key.clone(),
            failure: EndpointFailure {
                class: error.class(),
                code: code.clone(),
                is_quota,
                stated: error.retry_after(),
            },
            patience: self.patience(call.route + 1 == routes),
        };
        match patiently(self.store.trouble(), || self.failures.count(failure.clone())).await {
            Ok(FailedCall::Wait { until, wake_seq, opened, was_probe }) => {
                endpoint.believe_down();
                if opened && !was_probe {
                    metrics::breaker_opened(&endpoint.key.provider);
                    tracing::warn!(
                        provider.name = endpoint.key.provider, provider.until = %until, failure.code = %code,
                        "a model endpoint is down; what needs it waits"
                    );
                }
                Some(Wait { reason: WaitReason::ProviderDown, until, wake_seq, route: call.route })
            }
            Ok(FailedCall::Retry) => None,
            Err(error) => {
                tracing::warn!(error = %error, "a failed model call was not counted");
                None
            }
        }
    }

    /// Learns from a 429 or an overload, and decides if the call is repeated: until the patience of its last route is
    /// over. `waits`: the execution may wait. Counts it however long Postgres takes.
    pub async fn throttled(&self, call: &Call, error: &ModelError, routes: usize, waits: bool) -> AfterThrottle {
        let is_last = call.route + 1 == routes;
        let patience = self.patience(is_last);
        let stated = error.retry_after();
        // At once, because more calls begin meanwhile.
        if let Err(error) = self.learn_refusal(call, stated, patience).await {
            tracing::warn!(error = %error, "nothing was learned from a throttled model call");
        }
        let refusal = Refusal { asking: call.asking, key: call.endpoint.key.clone(), id: Uuid::new_v4(), patience };
        let left = match patiently(self.store.trouble(), || self.refusals.count(refusal.clone())).await {
            Ok(left) => left,
            Err(error) => {
                tracing::warn!(error = %error, "a throttled model call was not counted");
                None
            }
        };
        // With another route, admission goes on with that.
        let may_wait = left.is_some_and(|left| !is_last || left > stated.unwrap_or_default());
        if waits && may_wait {
            return AfterThrottle::Again;
        }
        if stated.is_some() {
            self.calls.gives_up(&call.endpoint.name, call.asking.id.0).await;
        }
        AfterThrottle::Fail
    }

    async fn learn_refusal(&self, call: &Call, stated: Option<Duration>, patience: Duration) -> Result<(), StoreError> {
        let now = self.now().await?;
        let endpoint = &call.endpoint;
        let others = endpoint.in_flight().saturating_sub(1);
        let did_learn = endpoint.begin_to_learn();
        let refused = RefusedCall {
            endpoint: &endpoint.name,
            execution: call.asking.id.0,
            now: seconds(now),
            is_rate: stated.is_some(),
            wait: stated.map(|wait| wait.max(MIN_SHUT)).unwrap_or_default(),
            in_flight: if did_learn { endpoint.uncounted() } else { others.saturating_mul(self.live_workers()) },
            begun: if did_learn { 0 } else { endpoint.begun_lately().saturating_sub(1) },
        };
        // Without Redis one call at a time, and a pause.
        let alone =
            || LearnedLimits { at_once: Some(1), per_second: None, shut_for: stated.unwrap_or(HOLD).min(patience) };
        endpoint.believe(self.calls.refused(refused).await.unwrap_or_else(alone), now);
        Ok(())
    }

    fn learn_now(&self, now: DateTime<Utc>) {
        *self.clock.lock() = Some((now, Instant::now()));
    }

    /// The database's clock, extrapolated from the last refresh.
    async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        loop {
            let clock = *self.clock.lock();
            if let Some((now, at)) = clock {
                return Ok(now + at.elapsed());
            }
            // Called before the first refresh.
            let known = patiently(self.store.trouble(), || self.store.known_providers()).await?;
            self.learn_now(known.now);
        }
    }

    fn live_workers(&self) -> u32 {
        self.workers.load(std::sync::atomic::Ordering::Relaxed).max(1)
    }
}

/// True for failures of the endpoint, not of the request, the reply or the agent.
fn is_outage(error: &ModelError) -> bool {
    match error.root() {
        ModelError::Unreachable { .. }
        | ModelError::ConnectTimeout { .. }
        | ModelError::FirstTokenTimeout { .. }
        | ModelError::GapTimeout { .. }
        | ModelError::TotalTimeout { .. }
        | ModelError::StreamCut { .. }
        | ModelError::Server { .. }
        | ModelError::InReply { .. } => true,
        // The key is refused, or may not do this: what is of the key is the same for all calls with it.
        ModelError::RequestRefused { answer } => matches!(answer.status, Some(401 | 403)),
        ModelError::RateLimited { .. }
        | ModelError::QuotaExhausted { .. }
        | ModelError::Unproven { .. }
        | ModelError::BadCall { .. }
        | ModelError::Malformed { .. }
        | ModelError::Empty
        | ModelError::TooLarge { .. }
        | ModelError::ContextTooLong { .. }
        | ModelError::Refused { .. }
        | ModelError::InvalidSettings { .. }
        | ModelError::Script { .. }
        | ModelError::UnknownProvider { .. }
        | ModelError::Interrupted { .. } => false,
    }
}

/// True if the provider asked for fewer calls: it refused this one for its rate, or is overloaded. Status 408 means
/// that a request took too long.
pub fn is_throttle(error: &ModelError) -> bool {
    let root = error.root();
    matches!(root, ModelError::RateLimited { answer, .. } if answer.status != Some(408))
        || matches!(root, ModelError::Server { answer, .. } if answer.says_overloaded())
}

/// A time as the scripts in Redis take it.
fn seconds(time: DateTime<Utc>) -> f64 {
    time.timestamp_micros() as f64 / 1e6
}
