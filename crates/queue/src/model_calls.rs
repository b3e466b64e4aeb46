//! Fleet-wide limits of a model endpoint: requests and tokens per minute, and concurrent calls.
//!
//! Used only for endpoints with a limit. If Redis loses its data, at most the reserved slots are lost, and their
//! owners ask again. While Redis is away, the rates are kept in Postgres (`store::providers`), and the concurrency
//! limit is divided among the workers.

use std::{fmt, sync::Arc, time::Duration};

use redis::Script;
use uuid::Uuid;

use super::{QueueError, QueueOptions, keys::Keys, link::SharedLink};

/// Reply timeout; a slower Redis counts as away.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Expiry of rates and reserved slots; longer than the longest wait for a slot.
const TTL_SECONDS: u64 = 2 * 24 * 3_600;

const TAKE_SCRIPT: &str = include_str!("lua/take_model_call.lua");
const END_SCRIPT: &str = include_str!("lua/end_model_calls.lua");

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
    /// The concurrency limit is reached.
    Full,
}

/// Client of the limits in Redis. Cheap to clone.
#[derive(Clone)]
pub struct ModelCalls {
    link: Arc<SharedLink>,
    keys: Keys,
    take: Arc<Script>,
    end: Arc<Script>,
}

impl ModelCalls {
    /// Creates an unconnected client.
    ///
    /// # Errors
    /// [`QueueError::Url`] if the URL cannot be parsed.
    pub fn new(options: &QueueOptions) -> Result<Self, QueueError> {
        let link = Arc::new(SharedLink::new(options, TIMEOUT)?);
        let (take, end) = (Arc::new(Script::new(TAKE_SCRIPT)), Arc::new(Script::new(END_SCRIPT)));
        Ok(Self { link, keys: Keys::new(&options.prefix), take, end })
    }

    /// Requests admission of a call. `None` if Redis does not answer.
    pub async fn take(&self, call: CallAsked<'_>, limits: CallLimits) -> Option<CallPlace> {
        let number = |limit: Option<u32>| limit.unwrap_or_default();
        let mut invocation = self.take.prepare_invoke();
        invocation
            .key(self.keys.model_rates(call.endpoint))
            .key(self.keys.model_running(call.endpoint))
            .key(self.keys.model_places(call.endpoint))
            .arg(format!("{:.6}", call.now))
            .arg(call.execution.as_bytes())
            .arg(number(limits.requests))
            .arg(number(limits.tokens))
            .arg(call.tokens)
            .arg(number(limits.at_once))
            .arg(call.counted().lost_at)
            .arg(call.patience.as_secs_f64())
            .arg(TTL_SECONDS);
        let asked = self.run(async |connection| invocation.invoke_async::<(u8, u64)>(connection).await);
        match asked.await? {
            (0, _) => Some(CallPlace::Now { was_reserved: false }),
            (4, _) => Some(CallPlace::Now { was_reserved: true }),
            (1, wait) => Some(CallPlace::In(Duration::from_millis(wait))),
            (2, _) => Some(CallPlace::TooLate),
            _ => Some(CallPlace::Full),
        }
    }

    /// Removes ended calls from the set. Returns false if Redis did not answer; the calls then expire at their
    /// `lost_at`.
    pub async fn ended(&self, endpoint: &str, calls: &[CountedCall]) -> bool {
        let mut invocation = self.end.prepare_invoke();
        invocation.key(self.keys.model_running(endpoint));
        for call in calls {
            invocation.arg(call.execution.as_bytes()).arg(&call.lost_at);
        }
        let told = self.run(async |connection| invocation.invoke_async::<u8>(connection).await);
        told.await.is_some()
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
