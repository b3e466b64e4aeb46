//! Reasons to claim: wake-ups from the lists of this worker's queues, popped on a dedicated connection (the ear),
//! and timers.
//!
//! The timers make the claims independent of Redis: the consumer polls Postgres every few seconds when idle, and
//! twice a second while Redis is late or away. If no reply comes in time, the ear is *away* until Redis answers
//! again. A pop in flight is kept across calls, so that a poll loses none of the wake-ups it returns. No method
//! returns an error.

use std::time::Duration;

use futures::future::BoxFuture;
use redis::RedisResult;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    super::{
        QueueError,
        keys::{Keys, WAKE_LIST_TTL_SECONDS},
        link::Link,
        messages,
        producer::PUSH_SCRIPT,
    },
    config::ConsumerConfig,
};
use longhaul_telemetry::metrics::{self, ClaimReason};

/// Server-side timeout of a blocking pop: 1.3 commands per second while idle.
const BLOCK: Duration = Duration::from_millis(750);
/// Tolerance for a reply due after `BLOCK` (the server checks timeouts ten times a second) before the caller polls.
/// `BLOCK + GRACE` stays under one second, within which work must start without Redis.
const GRACE: Duration = Duration::from_millis(150);
/// Reply timeout that drops the connection. Longer than `BLOCK + GRACE`: polling has already taken over, and
/// reconnecting to a slow server does not help.
const GIVE_UP: Duration = Duration::from_secs(3);

pub(super) struct Wakeups {
    ear: EarState,
    away: bool,
    /// Time at which the reply to the pop in flight is late; meaningless without one.
    late_at: Instant,
    /// Wake-ups of the last pop, kept until the claim they caused has returned.
    heard: Popped,
    list_cap: usize,
    poll_idle: Duration,
    poll_away: Duration,
}

/// Wake-ups popped from one list.
#[derive(Debug, Default)]
struct Popped {
    list: String,
    wakeups: Vec<Vec<u8>>,
}

/// State of the ear. It moves into the pop future and comes back with the reply.
enum EarState {
    Resting(Box<Ear>),
    Popping(BoxFuture<'static, (Box<Ear>, RedisResult<Popped>)>),
    /// Placeholder during a transition.
    Moving,
}

impl Wakeups {
    pub(super) fn new(config: &ConsumerConfig) -> Result<Self, QueueError> {
        let keys = Keys::new(&config.redis.prefix);
        let lists = config.queues.iter().map(|queue| keys.wake(queue)).collect();
        let ear = Ear { link: Link::new(&config.redis, GIVE_UP)?, lists };
        Ok(Self {
            ear: EarState::Resting(Box::new(ear)),
            away: false,
            late_at: Instant::now(),
            heard: Popped::default(),
            list_cap: config.redis.list_cap,
            poll_idle: config.poll_idle,
            poll_away: config.poll_away,
        })
    }

    /// Waits for a reason to claim up to `count` executions; the last claim was at `claimed_at`, if there was one.
    /// Cancel-safe.
    pub(super) async fn reason_to_claim(&mut self, count: usize, claimed_at: Option<Instant>) -> ClaimReason {
        loop {
            let (wait_until, poll_at) = self.clocks(claimed_at);
            tokio::select! {
                biased;
                reason = self.listen(count) => return reason,
                () = sleep_until(wait_until) => {
                    if Instant::now() >= poll_at {
                        return ClaimReason::Poll;
                    }
                }
            }
        }
    }

    /// Returns the time of the next timer check, and the time of the next poll.
    fn clocks(&self, claimed_at: Option<Instant>) -> (Instant, Instant) {
        let now = Instant::now();
        let Some(claimed_at) = claimed_at else { return (now, now) };
        let late_at = match self.ear {
            _ if self.away => now,
            EarState::Popping(_) => self.late_at,
            EarState::Resting(_) | EarState::Moving => now + BLOCK + GRACE,
        };
        if late_at <= now {
            let poll_at = claimed_at + self.poll_away;
            return (poll_at, poll_at);
        }
        let poll_at = claimed_at + self.poll_idle;
        (poll_at.min(late_at), poll_at)
    }

    /// Waits until wake-ups arrive or Redis stops answering; pops at most `count` wake-ups. While Redis is away,
    /// this keeps reconnecting without returning. Cancel-safe: the pop in flight continues with the next call.
    async fn listen(&mut self, count: usize) -> ClaimReason {
        loop {
            self.start(Pop { count, wait: Wait::Block });
            match self.answer().await {
                Ok(popped) if popped.wakeups.is_empty() => {}
                Ok(popped) => {
                    self.heard = popped;
                    return ClaimReason::Wakeup;
                }
                Err(error) => {
                    if !self.away {
                        self.away = true;
                        metrics::redis_away(true);
                        tracing::warn!(%error, "redis is away, polling postgres");
                        return ClaimReason::Poll;
                    }
                }
            }
        }
    }

    /// Discards up to `count` pending wake-ups, because a claim is about to serve them. Gives up after `GRACE` and
    /// does nothing while Redis is away. Cancel-safe.
    pub(super) async fn discard(&mut self, count: usize) {
        // A pop blocked on empty lists shows that there is nothing to discard.
        if self.away || matches!(self.ear, EarState::Popping(_)) {
            return;
        }
        self.start(Pop { count, wait: Wait::No });
        let _ = timeout_at(Instant::now() + GRACE, self.answer()).await;
    }

    /// Passes wake-ups of the last pop that brought no execution to another worker, which may serve other
    /// definitions. Gives up after `GRACE`, since polling finds the work as well. Cancel-safe.
    pub(super) async fn pass_on(&mut self, claimed: usize) {
        let Popped { list, wakeups } = std::mem::take(&mut self.heard);
        let push: Vec<_> = wakeups.iter().skip(claimed).filter_map(|wakeup| messages::passed_on(wakeup)).collect();
        if push.is_empty() {
            return;
        }
        if let EarState::Resting(ear) = std::mem::replace(&mut self.ear, EarState::Moving) {
            self.late_at = Instant::now() + BLOCK + GRACE;
            self.ear = EarState::Popping(Box::pin(ear.push(list, push, self.list_cap)));
            let _ = timeout_at(Instant::now() + GRACE, self.answer()).await;
        }
    }

    fn start(&mut self, pop: Pop) {
        self.ear = match std::mem::replace(&mut self.ear, EarState::Moving) {
            EarState::Resting(ear) => {
                self.late_at = Instant::now() + BLOCK + GRACE;
                EarState::Popping(Box::pin(ear.pop(pop)))
            }
            under_way @ (EarState::Popping(_) | EarState::Moving) => under_way,
        };
    }

    async fn answer(&mut self) -> RedisResult<Popped> {
        let EarState::Popping(pop) = &mut self.ear else { return Ok(Popped::default()) };
        let (ear, answer) = pop.await;
        self.ear = EarState::Resting(ear);
        if answer.is_ok() && self.away {
            self.away = false;
            metrics::redis_away(false);
            tracing::info!("redis is back, listening to wake-ups");
        }
        answer
    }
}

struct Pop {
    count: usize,
    wait: Wait,
}

enum Wait {
    Block,
    No,
}

struct Ear {
    link: Link,
    lists: Vec<String>,
}

impl Ear {
    async fn pop(mut self: Box<Self>, pop: Pop) -> (Box<Self>, RedisResult<Popped>) {
        self.link.pause().await;
        let mut command = match pop.wait {
            Wait::Block => {
                let mut command = redis::cmd("BLMPOP");
                command.arg(BLOCK.as_secs_f64());
                command
            }
            Wait::No => redis::cmd("LMPOP"),
        };
        command.arg(self.lists.len()).arg(&self.lists).arg("LEFT").arg("COUNT").arg(pop.count);
        let answer = self
            .link
            .run(async |connection| command.query_async::<Option<(String, Vec<Vec<u8>>)>>(connection).await)
            .await;
        let popped = |(list, wakeups)| Popped { list, wakeups };
        (self, answer.map(|answer| answer.map(popped).unwrap_or_default()))
    }

    async fn push(
        mut self: Box<Self>,
        list: String,
        wakeups: Vec<Vec<u8>>,
        cap: usize,
    ) -> (Box<Self>, RedisResult<Popped>) {
        self.link.pause().await;
        let mut command = redis::cmd("EVAL");
        command.arg(PUSH_SCRIPT).arg(1).arg(list).arg(cap).arg(WAKE_LIST_TTL_SECONDS).arg(wakeups);
        let pushed = self.link.run(async |connection| command.query_async::<usize>(connection).await).await;
        (self, pushed.map(|_| Popped::default()))
    }
}
