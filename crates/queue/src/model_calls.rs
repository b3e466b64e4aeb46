//! Fleet-wide limits of a model endpoint: requests and tokens per minute, and concurrent calls. They are configured, or
//! learned from what the endpoint refuses and says (docs/design/model-calls.md).
//!
//! Used only for endpoints with a limit. If Redis loses its data, what was learned is learned again, and the owners of
//! reserved slots ask again. While Redis is away, the rates are kept in Postgres (`store::providers`), and the
//! concurrency limit is divided among the workers.

use std::{fmt, sync::Arc, time::Duration};

use redis::{Script, ScriptInvocation};
use uuid::Uuid;

use super::{QueueError, QueueOptions, keys::Keys, link::SharedLink};

/// Reply timeout; a slower Redis counts as away.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Expiry of rates and reserved slots; longer than the longest wait for a slot.
const TTL_SECONDS: u64 = 2 * 24 * 3_600;

const TAKE_SCRIPT: &str = concat!(include_str!("lua/pace.lua"), include_str!("lua/take_model_call.lua"));
const END_SCRIPT: &str = concat!(include_str!("lua/pace.lua"), include_str!("lua/end_model_calls.lua"));
const REFUSED_SCRIPT: &str = concat!(include_str!("lua/pace.lua"), include_str!("lua/refused_model_call.lua"));
const ROOM_SCRIPT: &str = concat!(include_str!("lua/pace.lua"), include_str!("lua/room_for_model_calls.lua"));

/// Limits of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallLimits {
    /// Requests per minute.
    pub requests: Option<u32>,
    /// Tokens per minute.
    pub tokens: Option<u32>,
    /// Concurrent calls.
    pub at_once: Option<u32>,
}

/// A model call about to be made.
#[derive(Debug, Clone, Copy)]
pub struct CallAsked<'a> {
    /// Id of the endpoint: a hash that reveals nothing.
    pub endpoint: &'a str,
    /// Execution that makes the call; it makes one at a time.
    pub execution: Uuid,
    /// Database time, in seconds.
    pub now: f64,
    /// Estimated tokens of the call.
    pub tokens: u64,
    /// Time after which the call is considered lost.
    pub lost_after: Duration,
    /// Longest wait for which a slot is reserved.
    pub patience: Duration,
    /// Calls of this process in flight that began before the endpoint had a limit.
    pub uncounted: u32,
}

impl CallAsked<'_> {
    /// Entry of this call in the set of calls in flight.
    #[must_use]
    pub fn counted(&self) -> CountedCall {
        CountedCall { execution: self.execution, lost_at: format!("{:.6}", self.now + self.lost_after.as_secs_f64()) }
    }
}

/// A call in the set of calls in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedCall {
    execution: Uuid,
    /// In seconds, as text; distinguishes two calls of one execution.
    lost_at: String,
}

/// Admission of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPlace {
    /// Make the call now.
    Now {
        /// The call uses a slot that was reserved earlier.
        was_reserved: bool,
    },
    /// Wait for this long; a slot is reserved.
    In(Duration),
    /// The wait would exceed `patience`; nothing is reserved.
    TooLate,
    /// A limit is reached: of concurrent calls, or a learned rate for the next second.
    Full,
    /// The endpoint takes no calls for this long.
    Shut(Duration),
    /// Make the call now; the endpoint has no limit any more.
    Unlimited,
}

/// A limit as an endpoint's headers state it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatedLimit {
    /// Requests or tokens at most.
    pub limit: f64,
    pub remaining: f64,
    /// Time until all are there again.
    pub reset: Duration,
}

impl StatedLimit {
    /// True if no more than a quarter remains.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.remaining <= self.limit / 4.0
    }
}

/// The limits of an endpoint, as its headers state them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StatedLimits {
    pub requests: Option<StatedLimit>,
    pub tokens: Option<StatedLimit>,
}

impl StatedLimits {
    /// The wait after which a limit of which nothing remains is asked again, at most a second: most fill evenly.
    #[must_use]
    pub fn spent_for(&self) -> Option<Duration> {
        self.all().filter(|limit| limit.remaining < 1.0).map(|limit| limit.reset.min(Duration::from_secs(1))).max()
    }

    /// True if little of one remains.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.all().any(|limit| limit.is_low())
    }

    fn all(&self) -> impl Iterator<Item = StatedLimit> {
        [self.requests, self.tokens].into_iter().flatten()
    }
}

/// Facts about an endpoint that answered calls tell.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AnsweredCalls {
    pub count: u32,
    /// Tokens that were estimated when they were admitted.
    pub estimated: u64,
    /// Tokens that they used; 0 if the endpoint does not count.
    pub used: u64,
    /// The headers of the last of them.
    pub stated: StatedLimits,
}

impl AnsweredCalls {
    /// Adds calls that were answered later.
    pub fn add(&mut self, later: &Self) {
        self.count = self.count.saturating_add(later.count);
        self.estimated = self.estimated.saturating_add(later.estimated);
        self.used = self.used.saturating_add(later.used);
        self.stated = StatedLimits {
            requests: later.stated.requests.or(self.stated.requests),
            tokens: later.stated.tokens.or(self.stated.tokens),
        };
    }
}

/// A call that an endpoint refused for its limits.
#[derive(Debug, Clone, Copy)]
pub struct RefusedCall<'a> {
    pub endpoint: &'a str,
    pub execution: Uuid,
    /// Database time, in seconds.
    pub now: f64,
    /// True if a rate is the cause: the refusal states a time, or headers by which nothing remains.
    pub is_rate: bool,
    /// Stated wait.
    pub wait: Duration,
    /// While nothing is learned, the other calls of the fleet in flight, as far as this process knows; then those of
    /// this process that began before.
    pub in_flight: u32,
    /// Calls of this process in the last second that were not refused, if it learns of the limit only now; else 0.
    pub begun: u32,
}

/// Limits of an endpoint that the fleet has learned.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LearnedLimits {
    /// Concurrent calls over the fleet.
    pub at_once: Option<u32>,
    /// Calls per second over the fleet.
    pub per_second: Option<f64>,
    /// Time for which the endpoint takes no calls.
    pub shut_for: Duration,
}

impl LearnedLimits {
    fn read(window: u64, per_thousand_seconds: u64, shut_ms: u64) -> Self {
        Self {
            at_once: u32::try_from(window).ok().filter(|window| *window > 0),
            per_second: (per_thousand_seconds > 0).then_some(per_thousand_seconds as f64 / 1_000.0),
            shut_for: Duration::from_millis(shut_ms),
        }
    }
}

/// Room of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallRoom {
    /// Calls that it would take within the next half second.
    pub calls: u32,
    pub learned: LearnedLimits,
    /// False if nothing is learned, or nothing any more.
    pub learns: bool,
    /// Calls that it answered per second lately.
    pub served_per_second: f64,
}

/// Client of the limits in Redis. Cheap to clone.
#[derive(Clone)]
pub struct ModelCalls {
    link: Arc<SharedLink>,
    keys: Keys,
    take: Arc<Script>,
    end: Arc<Script>,
    refused: Arc<Script>,
    room: Arc<Script>,
}

impl ModelCalls {
    /// Creates an unconnected client.
    ///
    /// # Errors
    /// [`QueueError::Url`] if the URL cannot be parsed.
    pub fn new(options: &QueueOptions) -> Result<Self, QueueError> {
        let link = Arc::new(SharedLink::new(options, TIMEOUT)?);
        let script = |text| Arc::new(Script::new(text));
        Ok(Self {
            link,
            keys: Keys::new(&options.prefix),
            take: script(TAKE_SCRIPT),
            end: script(END_SCRIPT),
            refused: script(REFUSED_SCRIPT),
            room: script(ROOM_SCRIPT),
        })
    }

    /// Requests admission of a call. `None` if Redis does not answer.
    pub async fn take(&self, call: CallAsked<'_>, limits: CallLimits) -> Option<CallPlace> {
        let number = |limit: Option<u32>| limit.unwrap_or_default();
        let mut invocation = self.of_endpoint(&self.take, call.endpoint, call.now);
        invocation
            .arg(call.execution.as_bytes())
            .arg(number(limits.requests))
            .arg(number(limits.tokens))
            .arg(call.tokens)
            .arg(number(limits.at_once))
            .arg(call.counted().lost_at)
            .arg(call.patience.as_secs_f64())
            .arg(TTL_SECONDS)
            .arg(call.uncounted);
        let asked = self.run(async |connection| invocation.invoke_async::<(u8, u64)>(connection).await);
        match asked.await? {
            (0, _) => Some(CallPlace::Now { was_reserved: false }),
            (4, _) => Some(CallPlace::Now { was_reserved: true }),
            (1, wait) => Some(CallPlace::In(Duration::from_millis(wait))),
            (2, _) => Some(CallPlace::TooLate),
            (5, wait) => Some(CallPlace::Shut(Duration::from_millis(wait))),
            (6, _) => Some(CallPlace::Unlimited),
            _ => Some(CallPlace::Full),
        }
    }

    /// Forgets what was learned. Returns false if Redis did not answer.
    pub async fn forget(&self, endpoint: &str) -> bool {
        let mut command = redis::cmd("DEL");
        command.arg(self.keys.model_rates(endpoint));
        self.run(async |connection| command.query_async::<u8>(connection).await).await.is_some()
    }

    /// Removes ended calls from the set, and learns from those that were answered. Returns false if Redis did not
    /// answer; the calls then expire at their `lost_at`.
    pub async fn ended(&self, endpoint: &str, now: f64, calls: &[CountedCall], answered: &AnsweredCalls) -> bool {
        let mut invocation = self.of_endpoint(&self.end, endpoint, now);
        invocation.arg(TTL_SECONDS).arg(answered.count).arg(answered.estimated).arg(answered.used);
        for stated in [answered.stated.requests, answered.stated.tokens] {
            match stated {
                Some(of) => invocation.arg(of.limit).arg(of.remaining).arg(of.reset.as_secs_f64()),
                None => invocation.arg(-1).arg(0).arg(0),
            };
        }
        for call in calls {
            invocation.arg(call.execution.as_bytes()).arg(&call.lost_at);
        }
        let told = self.run(async |connection| invocation.invoke_async::<u8>(connection).await);
        told.await.is_some()
    }

    /// Learns from a refused call. `None` if Redis does not answer.
    pub async fn refused(&self, call: RefusedCall<'_>) -> Option<LearnedLimits> {
        let mut invocation = self.of_endpoint(&self.refused, call.endpoint, call.now);
        invocation
            .arg(call.execution.as_bytes())
            .arg(u8::from(call.is_rate))
            .arg(call.wait.as_secs_f64())
            .arg(call.in_flight)
            .arg(call.begun)
            .arg(TTL_SECONDS);
        let told = self.run(async |connection| invocation.invoke_async::<(u64, u64, u64)>(connection).await);
        let (window, rate, shut) = told.await?;
        Some(LearnedLimits::read(window, rate, shut))
    }

    /// An execution does not repeat a refused call: nothing is reserved for the end of the stated wait.
    pub async fn gives_up(&self, endpoint: &str, execution: Uuid) {
        let mut command = redis::cmd("ZREM");
        command.arg(self.keys.model_places(endpoint)).arg([&b"after "[..], execution.as_bytes()].concat());
        self.run(async |connection| command.query_async::<u8>(connection).await).await;
    }

    /// The room of an endpoint with `at_once` as its configured limit on concurrent calls. A limit that has a line is
    /// tried for more. `None` if Redis does not answer.
    pub async fn room(&self, endpoint: &str, now: f64, at_once: Option<u32>, has_line: bool) -> Option<CallRoom> {
        let mut invocation = self.of_endpoint(&self.room, endpoint, now);
        invocation.arg(at_once.unwrap_or_default()).arg(u8::from(has_line)).arg(TTL_SECONDS);
        type Told = (u32, u64, u64, u64, u8, u64);
        let told = self.run(async |connection| invocation.invoke_async::<Told>(connection).await);
        let (calls, window, rate, shut, learns, served) = told.await?;
        let learned = LearnedLimits::read(window, rate, shut);
        Some(CallRoom { calls, learned, learns: learns == 1, served_per_second: served as f64 / 1_000.0 })
    }

    /// A run of a script over the keys of an endpoint, as of `now`.
    fn of_endpoint<'a>(&self, script: &'a Script, endpoint: &str, now: f64) -> ScriptInvocation<'a> {
        let mut invocation = script.prepare_invoke();
        invocation
            .key(self.keys.model_rates(endpoint))
            .key(self.keys.model_running(endpoint))
            .key(self.keys.model_places(endpoint))
            .arg(format!("{now:.6}"));
        invocation
    }

    async fn run<T>(
        &self,
        commands: impl AsyncFnOnce(&mut redis::aio::MultiplexedConnection) -> redis::RedisResult<T>,
    ) -> Option<T> {
        let answer = self.link.run(commands).await;
        answer.inspect_err(|error| tracing::debug!(%error, "redis does not say what a model may be asked")).ok()
    }
}

impl fmt::Debug for ModelCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelCalls").field("keys", &self.keys).finish_non_exhaustive()
    }
}
