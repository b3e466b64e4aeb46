//! Pops wake-ups from the lists of this worker's queues, on a dedicated connection (the ear).
//!
//! A pop in flight is kept across calls, so that the caller may stop listening (to poll Postgres) and resume
//! without losing the wake-ups it returns. If no reply comes in time, the ear is *away* until Redis answers again;
//! while it is late or away the caller polls. No method returns an error.

use std::time::Duration;

use futures::future::BoxFuture;
use redis::RedisResult;
use tokio::time::{Instant, timeout_at};

use super::super::{
    QueueError, QueueOptions, keys::WAKE_LIST_TTL_SECONDS, link::Link, messages, producer::PUSH_SCRIPT,
};
use longhaul_shared::telemetry::metrics;

/// Server-side timeout of a blocking pop: 1.3 commands per second while idle.
const BLOCK: Duration = Duration::from_millis(750);
/// Tolerance for a reply due after `BLOCK` (the server checks timeouts ten times a second) before the caller polls.
/// `BLOCK + GRACE` stays under one second, within which work must start without Redis.
const GRACE: Duration = Duration::from_millis(150);
/// Reply timeout that drops the connection. Longer than `BLOCK + GRACE`: polling has already taken over, and
/// reconnecting to a slow server does not help.
const GIVE_UP: Duration = Duration::from_secs(3);

/// Result of listening.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Wake-ups were popped.
    Wakeups,
    /// Redis has just stopped answering.
    Away,
}

pub(super) struct Wakeups {
    ear: EarState,
    away: bool,
    /// Time at which the reply to the pop in flight is late; meaningless without one.
    late_at: Instant,
    /// Wake-ups of the last pop, kept until the claim they caused has returned.
    heard: Popped,
    list_cap: usize,
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
    pub(super) fn new(options: &QueueOptions, lists: Vec<String>) -> Result<Self, QueueError> {
        let ear = Ear { link: Link::new(options, GIVE_UP)?, lists };
        Ok(Self {
            ear: EarState::Resting(Box::new(ear)),
            away: false,
            late_at: Instant::now(),
            heard: Popped::default(),
            list_cap: options.list_cap,
        })
    }

    /// Waits until wake-ups arrive or Redis stops answering; pops at most `count` wake-ups. While Redis is away,
    /// this keeps reconnecting without returning. Cancel-safe: the pop in flight continues with the next call.
    pub(super) async fn listen(&mut self, count: usize) -> Heard {
        loop {
            self.start(Pop { count, wait: Wait::Block });
            match self.answer().await {
                Ok(popped) if popped.wakeups.is_empty() => {}
                Ok(popped) => {
                    self.heard = popped;
                    return Heard::Wakeups;
                }
                Err(error) => {
                    if !self.away {
                        self.away = true;
                        metrics::redis_away(true);
                        tracing::warn!(%error, "redis is away, polling postgres");
                        return Heard::Away;
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

    /// Time from which Postgres must be polled at short intervals; `None` means now.
    pub(super) fn late_at(&self) -> Option<Instant> {
        let popping = matches!(self.ear, EarState::Popping(_));
        (!self.away).then(|| if popping { self.late_at } else { Instant::now() + BLOCK + GRACE })
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
