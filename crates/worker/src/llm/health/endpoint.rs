//! One endpoint as this process sees it, and a call to it that is under way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use longhaul_shared::{
    config::ProviderConfig,
    queue::model_calls::{CallLimits, CountedCall},
    store::providers::{Asking, Breaker, ModelKey},
};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, mpsc};

use super::Health;
use crate::llm::{ModelError, ModelReply};

/// A call of high effort may take twice as long as its provider's clock says; beyond that it is believed lost.
const LOST_AFTER_CLOCKS: u32 = 3;

/// What the configuration says of a provider's endpoints.
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

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(super) key: ModelKey,
    /// Its name in Redis.
    pub(super) name: String,
    /// By configuration.
    pub(super) limits: CallLimits,
    pub(super) lost_after: Duration,
    is_down: AtomicBool,
    /// Calls at a time since it said that there were too many; 0: not limited.
    throttled_to: AtomicU32,
    /// It takes no calls before, in microseconds of the database's clock; 0: it takes calls.
    closed_until: AtomicI64,
    /// Calls of this process that wait because as many as may be are under way. One at a time of them asks for a place.
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

    /// Calls at a time over the fleet.
    pub(super) fn at_once(&self) -> Option<u32> {
        let throttled = Some(self.throttled_to.load(Ordering::Relaxed)).filter(|&to| to > 0);
        match (throttled, self.limits.at_once) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Counts a call as under way in this process, unless `most` are.
    pub(super) fn begin_within(self: &Arc<Self>, most: u32) -> Option<UnderWay> {
        let one_more = |running: u32| (running < most).then_some(running + 1);
        let begun = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        begun.is_ok().then(|| UnderWay(self.clone()))
    }

    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Counts a caller as waiting, until the answer is dropped.
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

/// A caller that waits for a place.
pub(super) struct Waits<'a>(&'a Endpoint);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place among the calls at a time. Redis counts it from before it is asked for, as far as anybody here knows, until it is told of the
/// end, by the task that keeps the books.
pub(super) struct CountedPlace {
    endpoint: Arc<Endpoint>,
    call: CountedCall,
    is_told: AtomicBool,
    left: mpsc::Sender<LeftPlace>,
}

/// A place that was given up without a word.
pub(super) type LeftPlace = (Arc<Endpoint>, CountedCall);

impl CountedPlace {
    pub(super) fn new(endpoint: Arc<Endpoint>, call: CountedCall, left: mpsc::Sender<LeftPlace>) -> Self {
        Self { endpoint, call, is_told: AtomicBool::new(false), left }
    }

    /// Nothing is counted.
    pub(super) fn told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    /// Gives the place up now.
    pub(super) fn leave(&self) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            // What finds no room is believed lost in time.
            let _ = self.left.try_send((self.endpoint.clone(), self.call.clone()));
        }
    }
}

impl Drop for CountedPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A call that this process counts as under way, from its admission on, until this is dropped.
pub(super) struct UnderWay(Arc<Endpoint>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call that may be made, until this is dropped.
pub(crate) struct Call {
    health: Arc<Health>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) asking: Asking,
    /// Which of the agent's routes it takes.
    pub(crate) route: usize,
    /// Where Redis counts it as under way.
    pub(super) place: Option<CountedPlace>,
    /// It waited before, or is a probe: that it was answered must be told.
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

    /// Takes note of its end. Waits for nothing, so that the answer is recorded next.
    pub(crate) fn ended(&self, came_to: &Result<ModelReply, ModelError>) {
        self.health.ended(self, came_to.as_ref().err());
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("endpoint", &self.endpoint.key).field("route", &self.route).finish_non_exhaustive()
    }
}
