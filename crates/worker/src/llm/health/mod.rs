//! Whether a model may be asked now: breakers and limits that the whole fleet shares (docs/adr/0012-provider-health.md).
//!
//! What must hold:
//! - A call to an endpoint that is well and has no limit asks nobody: it reads two atomics.
//! - What this process believes of an endpoint is at most a second old, and only ever a reason to ask Postgres, which decides.
//! - Waits of up to [`HOLD`] are held in memory; for a longer one the execution parks and holds nothing.
//! - Whatever ends a call gives its place back, also what never made it: a place left behind would be held for half an hour.
//! - Nothing that is written down about a call stands between its answer and the commit of that ([`bookkeeping`]).

mod bookkeeping;
mod endpoint;
mod place;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
pub(crate) use endpoint::{Call, Endpoint, EndpointSettings};
use longhaul_sdk::spec::ModelSpec;
use longhaul_shared::{
    config::{HealthConfig, LlmConfig},
    domain::WaitReason,
    queue::{
        model_calls::{CallLimits, ModelCalls},
        producer::WakeupPublisher,
    },
    store::{
        Store, StoreError,
        maintenance::Runnable,
        provider_failures::{CallFailure, EndpointFailure, FailedCall, FailureCounter, Pauses},
        provider_limits::{ThrottleCounter, Throttled, ThrottledCall},
        providers::{Asking, Known, MayAsk, ModelKey, RELEASED_AT_ONCE},
    },
    telemetry::metrics,
};
use uuid::Uuid;

use super::{ChatModel, ModelError, Models};
use crate::patience::patiently;
use bookkeeping::Books;
use place::Place;

/// The longest wait that is held in memory.
const HOLD: Duration = Duration::from_secs(2);
/// Endpoints kept in memory: agents name models freely.
const MAX_ENDPOINTS: usize = 10_000;
/// The shortest time for which an endpoint is closed after a 429.
const MIN_SHUT: Duration = Duration::from_millis(100);
/// The 429 in a row that is a failure.
const MAX_THROTTLES: u32 = 4;
/// Time that one run of the duty spends on releases of large portions.
const TENDING: Duration = Duration::from_millis(500);

/// Whom an agent may ask: its model, or one it falls back to.
pub(crate) struct Route {
    /// How it is asked.
    pub(crate) spec: ModelSpec,
    pub(crate) model: Arc<dyn ChatModel>,
    pub(crate) endpoint: Arc<Endpoint>,
}

/// Whether a call may be made.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It may, while this is kept.
    Call(Arc<Call>),
    /// The execution parks.
    Wait(Wait),
    /// It has waited long enough, for every model it may ask.
    GiveUp {
        /// The quota is spent; otherwise the endpoint is down, or at its limits.
        is_quota: bool,
    },
}

/// What an execution parks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    /// `provider_down` or `rate_limit`.
    pub(crate) reason: WaitReason,
    /// By the database's clock.
    pub(crate) until: DateTime<Utc>,
    /// The wake counter, read when it joined the line.
    pub(crate) wake_seq: i32,
    /// The route it waits for.
    pub(crate) route: usize,
}

/// What this process knows of all endpoints.
pub(crate) struct Health {
    store: Store,
    calls: ModelCalls,
    failures: FailureCounter,
    throttles: ThrottleCounter,
    publisher: WakeupPublisher,
    config: HealthConfig,
    settings: HashMap<String, EndpointSettings>,
    endpoints: Mutex<HashMap<ModelKey, Arc<Endpoint>>>,
    clock: Mutex<Option<(DateTime<Utc>, Instant)>>,
    workers: std::sync::atomic::AtomicU32,
    books: Books,
}

/// What comes of a 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterThrottle {
    /// The same call is admitted again, when the endpoint takes calls. No retry is spent.
    Again,
    /// The table of classes applies.
    Fail,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Health {
    pub(crate) fn new(store: Store, calls: ModelCalls, publisher: WakeupPublisher, config: &LlmConfig) -> Self {
        let settings = config.providers.iter().map(|(name, of)| (name.clone(), EndpointSettings::from(of))).collect();
        let pauses = Pauses { first: config.health.probe, longest: config.health.probe_max };
        Self {
            failures: FailureCounter::spawn(store.clone(), pauses),
            throttles: ThrottleCounter::spawn(store.clone()),
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

    /// Whom an agent may ask, its own model first.
    ///
    /// # Errors
    /// [`ModelError::UnknownProvider`]: this worker does not have one of them.
    pub(crate) fn routes(&self, models: &Models, spec: &ModelSpec) -> Result<Vec<Route>, ModelError> {
        let route = |spec: ModelSpec| {
            let model = models.get(&spec)?.clone();
            let key = ModelKey {
                provider: model.provider().to_owned(),
                model: model.model_name(&spec).to_owned(),
                key: models.fingerprint(&spec).to_owned(),
            };
            Ok(Route { endpoint: self.endpoint(key), spec, model })
        };
        spec.routes().into_iter().map(route).collect()
    }

    /// A model that the worker's configuration does not know.
    pub(crate) fn route(&self, spec: ModelSpec, model: Arc<dyn ChatModel>, fingerprint: String) -> Route {
        let (provider, name) = (model.provider().to_owned(), model.model_name(&spec).to_owned());
        Route { endpoint: self.endpoint(ModelKey { provider, model: name, key: fingerprint }), spec, model }
    }

    fn endpoint(&self, key: ModelKey) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Asks for a call of about `tokens` tokens, along the routes.
    ///
    /// # Errors
    /// The lease is lost, or the store refused.
    pub(crate) async fn admit(
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
            match self.place(endpoint, asking, tokens, patience).await? {
                Place::Free { under_way, counted, was_parked } => {
                    let tells = has_waited || was_parked;
                    let call = Call::new(self.clone(), under_way, asking, index, counted, tells);
                    return Ok(Admission::Call(Arc::new(call)));
                }
                Place::Later { until, wake_seq } => {
                    let reason = WaitReason::RateLimit;
                    return Ok(Admission::Wait(Wait { reason, until, wake_seq, route: index }));
                }
                Place::None => has_waited = true,
            }
        }
        Ok(Admission::GiveUp { is_quota })
    }

    fn patience(&self, is_last: bool) -> Duration {
        if is_last { self.config.max_wait } else { self.config.fallback_after }
    }

    /// What the failure of a call means: the execution waits, or the table of classes applies (`None`). Not before it is counted,
    /// however long Postgres takes: what is not counted would not be refunded.
    pub(crate) async fn failed(&self, call: &Call, error: &ModelError, routes: usize) -> Option<Wait> {
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

    /// What a 429 means for the attempt: it asks again when the endpoint takes calls, or the table of classes applies. `waits` says
    /// whether the execution may wait. Like a failure it is counted first, however long Postgres takes.
    pub(crate) async fn throttled(&self, call: &Call, error: &ModelError, routes: usize, waits: bool) -> AfterThrottle {
        let endpoint = &call.endpoint;
        let patience = self.patience(call.route + 1 == routes);
        let stated = error.retry_after().map(|wait| wait.max(MIN_SHUT)).filter(|wait| *wait <= patience);
        let workers = self.workers.load(std::sync::atomic::Ordering::Relaxed);
        let throttled = ThrottledCall {
            asking: call.asking,
            key: endpoint.key.clone(),
            id: Uuid::new_v4(),
            shut_for: stated,
            in_flight: endpoint.in_flight().max(1).saturating_mul(workers.max(1)),
            most: endpoint.limits.at_once,
            patience,
        };
        match patiently(self.store.trouble(), || self.throttles.count(throttled.clone())).await {
            Ok(Throttled { streak, at_once, closed_until }) => {
                endpoint.believe_limited(Some(at_once));
                endpoint.believe_closed(closed_until);
                let again = waits && stated.is_some() && streak.is_some_and(|streak| streak < MAX_THROTTLES);
                if again { AfterThrottle::Again } else { AfterThrottle::Fail }
            }
            Err(error) => {
                tracing::warn!(error = %error, "a throttled model call was not counted");
                AfterThrottle::Fail
            }
        }
    }

    /// Refreshes what this process knows of breakers, limits and lines. Called once per second.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let Known { now, workers, breakers } = self.store.known_providers().await?;
        self.learn_now(now);
        self.workers.store(workers, std::sync::atomic::Ordering::Relaxed);
        let known: HashMap<&ModelKey, _> = breakers.iter().map(|breaker| (&breaker.key, breaker)).collect();
        let endpoints: Vec<_> = {
            let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
            // Also those that this process has not asked yet: a first call must find them.
            for breaker in &breakers {
                if !endpoints.contains_key(&breaker.key) {
                    let limits = self.settings.get(&breaker.key.provider);
                    endpoints.insert(breaker.key.clone(), Arc::new(Endpoint::new(breaker.key.clone(), limits)));
                }
            }
            endpoints.values().cloned().collect()
        };
        let mut open: HashMap<&str, u32> = self.settings.keys().map(|provider| (provider.as_str(), 0)).collect();
        for endpoint in &endpoints {
            let breaker = known.get(&endpoint.key);
            endpoint.learn(breaker.copied());
            if breaker.is_some_and(|breaker| !breaker.is_closed) {
                *open.entry(&endpoint.key.provider).or_default() += 1;
            }
        }
        for (provider, count) in open {
            metrics::breakers_open(provider, count);
        }
        for endpoint in &endpoints {
            if endpoint.take_answered() && endpoint.is_throttled() {
                self.store.raise_concurrency(&endpoint.key).await?;
            }
        }
        Ok(())
    }

    /// The duty of the sweep about endpoints: chooses probes, releases the portions of breakers that recover, and wakes the heads of
    /// lines whose endpoint has a free slot that no ended call announced.
    ///
    /// # Errors
    /// Postgres is unavailable, or an endpoint's breaker could not be tended. The others were.
    pub(crate) async fn tend(&self) -> Result<(), StoreError> {
        let Known { now, workers, breakers } = self.store.known_providers().await?;
        let until = Instant::now() + TENDING;
        let mut failed = None;
        for breaker in &breakers {
            if !breaker.is_closed {
                failed = self.tend_breaker(&breaker.key, until).await.err().or(failed);
            }
            if breaker.has_line && breaker.closed_until.is_none_or(|closed_until| closed_until <= now) {
                self.let_go(&breaker.key, i32::try_from(workers).unwrap_or(i32::MAX)).await;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Tends one breaker, in transactions of a bounded size, until its portion is released or the time is over.
    async fn tend_breaker(&self, key: &ModelKey, until: Instant) -> Result<(), StoreError> {
        loop {
            match self.store.tend_provider(key, self.config.max_wait).await {
                Ok(woken) => {
                    self.announce(&woken);
                    if woken.len() < RELEASED_AT_ONCE as usize || Instant::now() > until {
                        return Ok(());
                    }
                }
                Err(error) => {
                    metrics::breaker_tending_failed(&key.provider);
                    tracing::warn!(
                        provider.name = key.provider, error = %error,
                        "a breaker could not be tended; the executions that wait for its endpoint go on waiting"
                    );
                    return Err(error);
                }
            }
        }
    }

    fn announce(&self, woken: &[Runnable]) {
        self.publisher.look(woken.iter().map(|one| one.id.0));
        for one in woken {
            crate::wake(&self.publisher, &one.queue, one.id, Some(WaitReason::Worker));
        }
    }

    fn learn_now(&self, now: DateTime<Utc>) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Instant::now()));
    }

    /// The database's clock in seconds, as far as this process knows it.
    async fn now(&self) -> Result<f64, StoreError> {
        loop {
            let clock = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((now, at)) = clock {
                return Ok((now + at.elapsed()).timestamp_micros() as f64 / 1e6);
            }
            // Asked before the first refresh.
            let known = patiently(self.store.trouble(), || self.store.known_providers()).await?;
            self.learn_now(known.now);
        }
    }

    fn limits(endpoint: &Endpoint) -> CallLimits {
        CallLimits { at_once: endpoint.at_once(), ..endpoint.limits }
    }
}

/// Failures that tell of the endpoint and not of the request, the reply or the agent.
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
        ModelError::RateLimited { .. }
        | ModelError::QuotaExhausted { .. }
        | ModelError::Malformed { .. }
        | ModelError::Empty
        | ModelError::TooLarge { .. }
        | ModelError::ContextTooLong { .. }
        | ModelError::RequestRefused { .. }
        | ModelError::Refused { .. }
        | ModelError::InvalidSettings { .. }
        | ModelError::Script { .. }
        | ModelError::UnknownProvider { .. }
        | ModelError::Interrupted { .. } => false,
    }
}

/// Whether an answer says that there are too many calls. A 408 says that one took too long.
pub(crate) fn is_throttle(error: &ModelError) -> bool {
    matches!(error.root(), ModelError::RateLimited { answer, .. } if answer.status != Some(408))
}

/// Keeps [`Health`] up to date.
pub(crate) async fn watch(health: Arc<Health>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = health.refresh().await {
            tracing::warn!(error = %error, "what is known of model endpoints is old");
        }
    }
}
