//! This process's state of an endpoint, and a call in flight to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use longhaul_queue::model_calls::{CallLimits, CountedCall};
use longhaul_shared::config::ProviderConfig;
use longhaul_store::providers::breakers::{Asking, Breaker, ModelKey};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, mpsc};

use super::Health;
use crate::{ModelError, ModelReply};

/// Multiple of the provider's total timeout after which a call counts as lost: a call of high effort may take
/// twice the timeout.
const LOST_AFTER_CLOCKS: u32 = 3;

/// Limits and timeouts of a provider's endpoints, from the configuration.
#[derive(Debug, Clone)]
pub(crate) struct EndpointSettings {
    limits: Vec<(String, CallLimits)>,
    lost_after: Duration,
}

impl From<&ProviderConfig> for EndpointSettings {
    fn from(config: &ProviderConfig) -> Self {
        let limits = config.limits.iter().map(|of| {
            let limits = CallLimits {
                requests: of.requests_per_minute,
                tokens: of.tokens_per_minute,
                at_once: of.max_concurrency,
            };
            (of.model.clone(), limits)
        });
        Self { limits: limits.collect(), lost_after: config.total * LOST_AFTER_CLOCKS }
    }
}

impl EndpointSettings {
    fn of(&self, model: &str) -> CallLimits {
        let named = |name: &str| self.limits.iter().find(|(model, _)| model == name).map(|(_, limits)| *limits);
        named(model).or_else(|| named("*")).unwrap_or_default()
    }
}

/// This process's state of one endpoint.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) key: ModelKey,
    /// Name in Redis keys.
    pub(super) name: String,
    /// Configured limits.
    pub(super) limits: CallLimits,
    pub(super) lost_after: Duration,
    is_down: AtomicBool,
    /// Concurrency limit since the endpoint answered 429; 0: none.
    throttled_to: AtomicU32,
    /// End of the endpoint's pause after a 429, in microseconds of the database's clock; 0: none.
    closed_until: AtomicI64,
    /// Calls of this process that wait because the concurrency limit is reached. One of them at a time asks for a
    /// slot.
    waiting: AtomicU32,
    pub(super) turn: Mutex<()>,
    in_flight: AtomicU32,
    answered: AtomicBool,
    has_line: AtomicBool,
}

impl Endpoint {
    pub(super) fn new(key: ModelKey, settings: Option<&EndpointSettings>) -> Self {
        let hash = Sha256::digest(format!("{}\0{}\0{}", key.provider, key.model, key.key));
        Self {
            name: hex::encode(&hash[..12]),
            limits: settings.map(|settings| settings.of(&key.model)).unwrap_or_default(),
            lost_after: settings.map_or(Duration::from_secs(1_800), |settings| settings.lost_after),
            key,
            is_down: AtomicBool::new(false),
            throttled_to: AtomicU32::new(0),
            closed_until: AtomicI64::new(0),
            waiting: AtomicU32::new(0),
            turn: Mutex::new(()),
            in_flight: AtomicU32::new(0),
            answered: AtomicBool::new(false),
            has_line: AtomicBool::new(false),
        }
    }

    pub(super) fn may_be_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    pub(super) fn believe_down(&self) {
        self.is_down.store(true, Ordering::Relaxed);
    }

    pub(super) fn believe_limited(&self, to: Option<u32>) {
        self.throttled_to.store(to.unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn believe_closed(&self, until: Option<DateTime<Utc>>) {
        self.closed_until.store(until.map_or(0, |until| until.timestamp_micros()), Ordering::Relaxed);
    }

    pub(super) fn closed_until(&self) -> Option<DateTime<Utc>> {
        let until = self.closed_until.load(Ordering::Relaxed);
        (until > 0).then(|| DateTime::from_timestamp_micros(until)).flatten()
    }

    pub(super) fn learn(&self, breaker: Option<&Breaker>) {
        self.is_down.store(breaker.is_some_and(|breaker| !breaker.is_closed), Ordering::Relaxed);
        self.believe_limited(breaker.and_then(|breaker| breaker.concurrency));
        self.believe_closed(breaker.and_then(|breaker| breaker.closed_until));
        self.has_line.store(breaker.is_some_and(|breaker| breaker.has_line), Ordering::Relaxed);
    }

    pub(super) fn is_throttled(&self) -> bool {
        self.throttled_to.load(Ordering::Relaxed) > 0
    }

    /// Concurrency limit over the fleet: the lower of configured and learned.
    pub(super) fn at_once(&self) -> Option<u32> {
        let throttled = Some(self.throttled_to.load(Ordering::Relaxed)).filter(|&to| to > 0);
        match (throttled, self.limits.at_once) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Counts a call as in flight in this process, unless `most` already are.
    pub(super) fn begin_within(self: &Arc<Self>, most: u32) -> Option<UnderWay> {
        let one_more = |running: u32| (running < most).then_some(running + 1);
        let begun = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        begun.is_ok().then(|| UnderWay(self.clone()))
    }

    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Counts a caller as waiting until the returned guard is dropped.
    pub(super) fn wait(&self) -> Waits<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waits(self)
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn has_line(&self) -> bool {
        self.has_line.load(Ordering::Relaxed)
    }

    pub(super) fn note_answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_answered(&self) -> bool {
        self.answered.swap(false, Ordering::Relaxed)
    }
}

/// Guard of a caller that waits for a slot.
pub(super) struct Waits<'a>(&'a Endpoint);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A concurrency slot in Redis. It is assumed to be counted from before the request to Redis until the
/// bookkeeping task has released it.
pub(super) struct CountedPlace {
    endpoint: Arc<Endpoint>,
    call: CountedCall,
    is_told: AtomicBool,
    left: mpsc::Sender<LeftPlace>,
}

/// A released slot that Redis must be told of.
pub(super) type LeftPlace = (Arc<Endpoint>, CountedCall);

impl CountedPlace {
    pub(super) fn new(endpoint: Arc<Endpoint>, call: CountedCall, left: mpsc::Sender<LeftPlace>) -> Self {
        Self { endpoint, call, is_told: AtomicBool::new(false), left }
    }

    /// Marks the slot as not counted by Redis.
    pub(super) fn told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    /// Releases the slot now.
    pub(super) fn leave(&self) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            // If the queue is full, the slot expires as lost.
            let _ = self.left.try_send((self.endpoint.clone(), self.call.clone()));
        }
    }
}

impl Drop for CountedPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Counts a call as in flight in this process, from its admission until this is dropped.
pub(super) struct UnderWay(Arc<Endpoint>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An admitted call, until this is dropped.
pub struct Call {
    health: Arc<Health>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) asking: Asking,
    /// Index into the agent's routes.
    pub route: usize,
    /// The call's slot in Redis, if Redis counts it.
    pub(super) place: Option<CountedPlace>,
    /// True for a probe or after a wait: the breaker must learn that it was answered.
    pub(super) tells: bool,
    _under_way: UnderWay,
}

impl Call {
    pub(super) fn new(
        health: Arc<Health>,
        under_way: UnderWay,
        asking: Asking,
        route: usize,
        place: Option<CountedPlace>,
        tells: bool,
    ) -> Self {
        let endpoint = under_way.0.clone();
        Self { health, endpoint, asking, route, place, tells, _under_way: under_way }
    }

    /// Records the call's end. Does not wait, so that the answer is committed next.
    pub fn ended(&self, came_to: &Result<ModelReply, ModelError>) {
        self.health.ended(self, came_to.as_ref().err());
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("endpoint", &self.endpoint.key).field("route", &self.route).finish_non_exhaustive()
    }
}
