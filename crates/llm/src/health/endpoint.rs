//! This process's state of an endpoint, and a call in flight to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use longhaul_config::ProviderConfig;
use longhaul_queue::model_calls::{AnsweredCalls, CallLimits, CountedCall, LearnedLimits};
use longhaul_store::providers::{
    breakers::{Asking, Breaker, ModelKey},
    limits::PublishedLimits,
};
use parking_lot::{Mutex as SyncMutex, MutexGuard};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, Notify, mpsc};

use super::{Health, ramp::Ramp};
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
    /// True once the endpoint refused a call for its limits, until they are forgotten.
    learns: AtomicBool,
    /// Learned limit on concurrent calls over the fleet; 0: none.
    at_once: AtomicU32,
    /// Learned calls in 1,000 seconds over the fleet; 0: none.
    pace: AtomicU64,
    /// Time before which the endpoint takes no calls, in microseconds of the database's clock; 0: none.
    closed_until: AtomicI64,
    /// Calls that it answered lately in 1,000 seconds.
    served: AtomicU64,
    published: SyncMutex<Option<PublishedLimits>>,
    ramp: SyncMutex<Ramp>,
    /// Calls of this process that wait because a limit is reached. One of them at a time asks for a slot.
    waiting: AtomicU32,
    pub(super) turn: Mutex<()>,
    /// Told when calls of this process have ended.
    pub(super) freed: Notify,
    in_flight: AtomicU32,
    /// Those of them that Redis counts.
    counted: AtomicU32,
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
            learns: AtomicBool::new(false),
            at_once: AtomicU32::new(0),
            pace: AtomicU64::new(0),
            closed_until: AtomicI64::new(0),
            served: AtomicU64::new(0),
            published: SyncMutex::default(),
            ramp: SyncMutex::new(Ramp::new(Instant::now())),
            waiting: AtomicU32::new(0),
            turn: Mutex::new(()),
            freed: Notify::new(),
            in_flight: AtomicU32::new(0),
            counted: AtomicU32::new(0),
            has_line: AtomicBool::new(false),
        }
    }

    pub(super) fn may_be_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    pub(super) fn believe_down(&self) {
        self.is_down.store(true, Ordering::Relaxed);
    }

    /// Takes over what was learned; `now` is the database's clock.
    pub(super) fn believe(&self, learned: LearnedLimits, now: DateTime<Utc>) {
        self.learns.store(true, Ordering::Relaxed);
        self.at_once.store(learned.at_once.unwrap_or(0), Ordering::Relaxed);
        self.pace.store((learned.per_second.unwrap_or(0.0) * 1_000.0) as u64, Ordering::Relaxed);
        let until = if learned.shut_for.is_zero() { 0 } else { (now + learned.shut_for).timestamp_micros() };
        self.closed_until.store(until, Ordering::Relaxed);
    }

    /// Calls need permission from now on. Returns true if they did before.
    pub(super) fn begin_to_learn(&self) -> bool {
        self.learns.swap(true, Ordering::Relaxed)
    }

    /// Drops all that is learned.
    pub(super) fn forget(&self) {
        self.learns.store(false, Ordering::Relaxed);
        self.at_once.store(0, Ordering::Relaxed);
        self.pace.store(0, Ordering::Relaxed);
        self.closed_until.store(0, Ordering::Relaxed);
        *self.ramp() = Ramp::new(Instant::now());
    }

    pub(super) fn closed_until(&self) -> Option<DateTime<Utc>> {
        let until = self.closed_until.load(Ordering::Relaxed);
        (until > 0).then(|| DateTime::from_timestamp_micros(until)).flatten()
    }

    /// Takes over what other workers published. Returns true if an operator has reset what was published.
    pub(super) fn learn(&self, breaker: Option<&Breaker>) -> bool {
        self.is_down.store(breaker.is_some_and(|breaker| !breaker.is_closed), Ordering::Relaxed);
        self.has_line.store(breaker.is_some_and(|breaker| breaker.has_line), Ordering::Relaxed);
        let is_limited = breaker.is_some_and(|breaker| breaker.concurrency.is_some() || breaker.per_second.is_some());
        if is_limited {
            self.learns.store(true, Ordering::Relaxed);
        }
        !is_limited && self.published().take().is_some_and(|published| published.is_limit())
    }

    /// True if calls need permission.
    pub(super) fn is_limited(&self) -> bool {
        self.learns() || self.limits != CallLimits::default()
    }

    /// True if something is learned.
    pub(super) fn learns(&self) -> bool {
        self.learns.load(Ordering::Relaxed)
    }

    pub(super) fn learn_speed(&self, served_per_second: f64) {
        self.served.store((served_per_second * 1_000.0) as u64, Ordering::Relaxed);
    }

    /// The learned limits, if they differ from those that were published last.
    pub(super) fn to_publish(&self) -> Option<PublishedLimits> {
        let per_second = |of: &AtomicU64| Some(of.load(Ordering::Relaxed) as f64 / 1_000.0).filter(|rate| *rate > 0.0);
        let limits = PublishedLimits {
            at_once: Some(self.at_once.load(Ordering::Relaxed)).filter(|calls| *calls > 0),
            per_second: per_second(&self.pace),
            closed_until: self.closed_until(),
            served_per_second: self.has_line().then(|| per_second(&self.served)).flatten(),
        };
        let mut published = self.published();
        if published.is_some_and(|published| limits.is_near(&published)) {
            return None;
        }
        *published = Some(limits);
        Some(limits)
    }

    /// The last limits could not be published.
    pub(super) fn not_published(&self) {
        *self.published() = None;
    }

    fn published(&self) -> MutexGuard<'_, Option<PublishedLimits>> {
        self.published.lock()
    }

    fn ramp(&self) -> MutexGuard<'_, Ramp> {
        self.ramp.lock()
    }

    /// Begins a call to an endpoint of which no limit is known, or returns the time until one may begin.
    pub(super) fn begin_unlimited(self: &Arc<Self>) -> Result<UnderWay, Duration> {
        self.ramp().pass(Instant::now()).map_or_else(|| Ok(self.begin()), Err)
    }

    /// Calls of the last second that no limit held back.
    pub(super) fn begun_lately(&self) -> u32 {
        self.ramp().begun(Instant::now())
    }

    /// Limits for Redis to be away: the configured ones, and those that were learned last.
    pub(super) fn last_limits(&self) -> CallLimits {
        let lower = |one: Option<u32>, other: Option<u32>| one.into_iter().chain(other).min();
        let at_once = Some(self.at_once.load(Ordering::Relaxed)).filter(|&calls| calls > 0);
        let pace = Some(self.pace.load(Ordering::Relaxed) * 60 / 1_000).filter(|&calls| calls > 0);
        CallLimits {
            at_once: lower(self.limits.at_once, at_once),
            requests: lower(self.limits.requests, pace.map(|calls| u32::try_from(calls).unwrap_or(u32::MAX))),
            tokens: self.limits.tokens,
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
        self.waiting() > 0
    }

    fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Parked executions to let go when so many calls may begin. Enough callers wait in memory that no place stays
    /// empty until a parked execution has come, and no more: those would park again.
    pub(super) fn to_let_go(&self, room: u32) -> u32 {
        let soon = u32::try_from(self.pace.load(Ordering::Relaxed) / 2_000).unwrap_or(u32::MAX);
        let enough = soon.max(self.at_once.load(Ordering::Relaxed)).clamp(2, 1_000);
        room.min((enough + room.min(enough)).saturating_sub(self.waiting()))
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Calls of this process that Redis does not count.
    pub(super) fn uncounted(&self) -> u32 {
        self.in_flight().saturating_sub(self.counted.load(Ordering::Relaxed))
    }

    pub(super) fn has_line(&self) -> bool {
        self.has_line.load(Ordering::Relaxed)
    }
}

/// Guard of a caller that waits for a slot.
pub(super) struct Waits<'a>(&'a Endpoint);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call that Redis counts. It is assumed to be counted from before the request to Redis until the bookkeeping task
/// has told of its end.
pub(super) struct CountedPlace {
    endpoint: Arc<Endpoint>,
    call: CountedCall,
    is_told: AtomicBool,
    left: mpsc::Sender<EndedCall>,
}

/// An ended call that Redis must be told of.
pub(super) struct EndedCall {
    pub(super) endpoint: Arc<Endpoint>,
    /// Absent if Redis does not count it.
    pub(super) call: Option<CountedCall>,
    /// Facts that it tells, if it was answered.
    pub(super) answered: AnsweredCalls,
}

impl CountedPlace {
    pub(super) fn new(endpoint: Arc<Endpoint>, call: CountedCall, left: mpsc::Sender<EndedCall>) -> Self {
        endpoint.counted.fetch_add(1, Ordering::Relaxed);
        Self { endpoint, call, is_told: AtomicBool::new(false), left }
    }

    /// Marks the call as not counted by Redis.
    pub(super) fn told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    /// Tells of the end now.
    pub(super) fn leave(&self, answered: AnsweredCalls) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            // If the queue is full, the call expires as lost.
            let (endpoint, call) = (self.endpoint.clone(), Some(self.call.clone()));
            let _ = self.left.try_send(EndedCall { endpoint, call, answered });
        }
    }
}

impl Drop for CountedPlace {
    fn drop(&mut self) {
        self.endpoint.counted.fetch_sub(1, Ordering::Relaxed);
        self.leave(AnsweredCalls::default());
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
    /// Tokens that were estimated for it.
    pub(super) tokens: u64,
    _under_way: UnderWay,
}

impl Call {
    pub(super) fn new(
        health: Arc<Health>,
        under_way: UnderWay,
        asking: Asking,
        route: usize,
        (place, tokens): (Option<CountedPlace>, u64),
        tells: bool,
    ) -> Self {
        let endpoint = under_way.0.clone();
        Self { health, endpoint, asking, route, place, tells, tokens, _under_way: under_way }
    }

    /// Records the call's end. Does not wait, so that the answer is committed next.
    pub fn ended(&self, came_to: &Result<ModelReply, ModelError>) {
        self.health.ended(self, came_to.as_ref());
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("endpoint", &self.endpoint.key).field("route", &self.route).finish_non_exhaustive()
    }
}
