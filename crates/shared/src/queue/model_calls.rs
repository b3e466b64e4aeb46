//! What the fleet asks of a model endpoint at a time: requests and tokens a minute, and calls under way.
//!
//! Asked only for endpoints that have a limit. Losing all of it loses at most the places that were reserved: whoever had one asks
//! again. While Redis is away the rates are kept in Postgres (`store::providers`), and calls at a time are shared out by workers.

use std::{fmt, sync::Arc, time::Duration};

use redis::Script;
use uuid::Uuid;

use super::{QueueError, QueueOptions, keys::Keys, link::SharedLink};

/// The longest wait for one answer: a Redis that takes longer is away.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Rates and places outlive the longest wait for one.
const TTL_SECONDS: u64 = 2 * 24 * 3_600;

const TAKE_SCRIPT: &str = include_str!("lua/take_model_call.lua");
const END_SCRIPT: &str = include_str!("lua/end_model_calls.lua");

/// What an endpoint may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallLimits {
    /// Requests a minute.
    pub requests: Option<u32>,
    /// Tokens a minute.
    pub tokens: Option<u32>,
    /// Calls at a time.
    pub at_once: Option<u32>,
}

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct CallAsked<'a> {
    /// Names the endpoint; a hash, so that nothing of it can be read.
    pub endpoint: &'a str,
    /// The execution, which makes one call at a time.
    pub execution: Uuid,
    /// The database's clock, in seconds.
    pub now: f64,
    /// Tokens it is believed to take.
    pub tokens: u64,
    /// When it is believed lost.
    pub lost_after: Duration,
    /// The longest wait for which a place is reserved.
    pub patience: Duration,
}

impl CallAsked<'_> {
    /// How it is counted while it is under way.
    #[must_use]
    pub fn counted(&self) -> CountedCall {
        CountedCall { execution: self.execution, lost_at: format!("{:.6}", self.now + self.lost_after.as_secs_f64()) }
    }
}

/// A call that is counted as under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedCall {
    execution: Uuid,
    /// In seconds; tells two calls of one execution apart.
    lost_at: String,
}

/// Whether it may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPlace {
    /// Now.
    Now {
        /// With a place that was reserved before.
        was_reserved: bool,
    },
    /// Then; its place is kept.
    In(Duration),
    /// Not within its patience.
    TooLate,
    /// As many as may be are under way.
    Full,
}

/// The limits in Redis. Cheap to clone.
#[derive(Clone)]
pub struct ModelCalls {
    link: Arc<SharedLink>,
    keys: Keys,
    take: Arc<Script>,
    end: Arc<Script>,
}

impl ModelCalls {
    /// Connects when it is first asked.
    ///
    /// # Errors
    /// [`QueueError::Url`] when the address cannot be parsed.
    pub fn new(options: &QueueOptions) -> Result<Self, QueueError> {
        let link = Arc::new(SharedLink::new(options, TIMEOUT)?);
        let (take, end) = (Arc::new(Script::new(TAKE_SCRIPT)), Arc::new(Script::new(END_SCRIPT)));
        Ok(Self { link, keys: Keys::new(&options.prefix), take, end })
    }

    /// Asks for a place; `None` when Redis does not answer.
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

    /// The calls have ended. False when Redis did not hear it: then each is believed lost in time.
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
