//! Group commit: items of many executions share a round trip, while each waits for its own commit.
//!
//! Invariants (core-rules 9, 21): a bad item fails alone, a locked row delays only itself, an outage of the
//! server fails no item, and repeating is harmless because every item is idempotent. A lone item is never
//! delayed: a batch is what arrived while the previous flush was under way. Two flushes at a time would be two
//! small ones, at nearly twice the price; a second one starts only when the first takes unusually long.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex as StdMutex, MutexGuard as StdMutexGuard};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    StoreError,
    database::outage::{InTrouble, Trouble},
};
use longhaul_telemetry::metrics::{self, StoreBatch};

/// First wait after a round in which nothing passed; doubled up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// Shortest and longest wait before an item whose row was locked is flushed again; in between a quarter of the time for
/// which it has been locked.
const MIN_LOCKED_BACKOFF: Duration = Duration::from_millis(5);
const MAX_LOCKED_BACKOFF: Duration = Duration::from_millis(250);
/// Duration of a flush after which others no longer wait for it: several times that of a statement of hundreds of
/// items.
const UNUSUAL: Duration = Duration::from_millis(50);
/// Most bytes of a statement with more than one item: the server holds each value several times.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Lone failures after which an item is refused, counting only those between which other flushes passed.
const MAX_LONE_FAILURES: u32 = 10;

/// Result of one flush for one item.
pub(crate) enum Flushed<R> {
    /// Committed, or refused for good.
    Done(Result<R, StoreError>),
    /// Its row is there and another transaction has locked it; the item goes into a later batch. Never for a row that
    /// is gone: that item would be repeated for all of its patience (core-rules 29).
    Locked,
}

type Reply<R> = oneshot::Sender<Result<R, StoreError>>;
type Inbox<I, R> = mpsc::Receiver<(Arc<I>, Reply<R>)>;

/// An item that waits for its commit.
#[derive(Debug)]
struct Waiting<I, R> {
    item: Arc<I>,
    reply: Reply<R>,
    failing: Option<Failing>,
    /// Start of the current run of flushes that found its row locked.
    locked_since: Option<Instant>,
}

/// Failures of an item so far.
#[derive(Debug, Clone, Copy)]
struct Failing {
    /// Time of the first failure, from which patience is counted.
    since: Instant,
    lone: Option<Lone>,
}

/// Failures of an item that was flushed alone.
#[derive(Debug, Clone, Copy)]
struct Lone {
    /// Failures after which other flushes passed.
    counted: u32,
    /// Number of passed flushes at the last failure.
    passed: u64,
    /// Earliest time at which the item is flushed again.
    retry_at: Instant,
}

impl<I, R> Waiting<I, R> {
    fn lone(&self) -> Option<Lone> {
        self.failing.and_then(|failing| failing.lone)
    }

    /// Wait before the next flush.
    fn pause(&self) -> Duration {
        match self.lone() {
            Some(lone) => lone.retry_at.saturating_duration_since(Instant::now()),
            None => {
                let locked_for = self.locked_since.map(|since| since.elapsed()).unwrap_or_default();
                (locked_for / 4).clamp(MIN_LOCKED_BACKOFF, MAX_LOCKED_BACKOFF)
            }
        }
    }

    fn is_due(&self) -> bool {
        self.lone().is_none_or(|lone| lone.retry_at <= Instant::now())
    }
}

/// Collects items and flushes them together. Dropping it stops its tasks.
#[derive(Debug)]
pub(crate) struct Batcher<I, R> {
    items: mpsc::Sender<(Arc<I>, Reply<R>)>,
    _lanes: Vec<AbortOnDropHandle<()>>,
}

/// Settings of a [`Batcher`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    /// Kind of batch, for the metrics.
    pub(crate) what: StoreBatch,
    /// Most items of one statement.
    pub(crate) max_items: usize,
    /// Most concurrent flushes: one, and another for each that takes unusually long.
    pub(crate) lanes: usize,
    /// Most items that wait; callers beyond it are held up (backpressure).
    pub(crate) max_waiting: usize,
    /// Time for which an outage of Postgres, or the lock of an item's row, is waited out before items fail.
    pub(crate) patience: Duration,
}

impl<I: Send + Sync + 'static, R: Send + 'static> Batcher<I, R> {
    /// `flush` returns one [`Flushed`] per item, in order; `bytes` estimates the size of an item in its
    /// statement.
    pub(crate) fn spawn<F, Fut>(limits: BatchLimits, trouble: Trouble, bytes: fn(&I) -> usize, flush: F) -> Self
    where
        F: Fn(Vec<Arc<I>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Flushed<R>>, StoreError>> + Send + 'static,
    {
        let (items, receiver) = mpsc::channel(limits.max_waiting);
        let (receiver, flush, passed) = (Arc::new(Mutex::new(receiver)), Arc::new(flush), Arc::default());
        let turns = Arc::new(Turns { free: Arc::new(Semaphore::new(1)), taken_at: StdMutex::new(Instant::now()) });
        let lanes = (0..limits.lanes).map(|_| {
            let lane = Lane {
                receiver: Arc::clone(&receiver),
                turns: turns.clone(),
                flush: Arc::clone(&flush),
                passed: Arc::clone(&passed),
                trouble: trouble.clone(),
                bytes,
                limits,
            };
            AbortOnDropHandle::new(tokio::spawn(lane.run()))
        });
        Self { items, _lanes: lanes.collect() }
    }

    /// Waits until `item` is committed or refused.
    pub(crate) async fn submit(&self, item: impl Into<Arc<I>>) -> Result<R, StoreError> {
        let (reply, committed) = oneshot::channel();
        self.items.send((item.into(), reply)).await.map_err(|_| StoreError::Closed)?;
        committed.await.map_err(|_| StoreError::Closed)?
    }
}

/// Turns of the lanes: one flushes at a time, not counting a flush that takes unusually long.
struct Turns {
    free: Arc<Semaphore>,
    /// Start of the current turn.
    taken_at: StdMutex<Instant>,
}

/// Held while a lane flushes. `None` for a lane that flushes beside one that takes unusually long.
type Turn = Option<OwnedSemaphorePermit>;

impl Turns {
    async fn next(&self) -> Turn {
        loop {
            let since = *self.taken_at();
            match timeout_at(since + UNUSUAL, self.free.clone().acquire_owned()).await {
                Ok(taken) => {
                    *self.taken_at() = Instant::now();
                    return taken.ok();
                }
                Err(_) if *self.taken_at() == since => return None,
                // Another lane's turn began meanwhile.
                Err(_) => {}
            }
        }
    }

    fn taken_at(&self) -> StdMutexGuard<'_, Instant> {
        self.taken_at.lock()
    }
}

struct Lane<I, R, F> {
    receiver: Arc<Mutex<Inbox<I, R>>>,
    turns: Arc<Turns>,
    flush: Arc<F>,
    /// Number of flushes, of all lanes, that committed something.
    passed: Arc<AtomicU64>,
    trouble: Trouble,
    bytes: fn(&I) -> usize,
    limits: BatchLimits,
}

/// State of a lane between its rounds.
struct Kept<I, R> {
    items: Vec<Waiting<I, R>>,
    /// Wait before the next round, which new items do not shorten. `None` while something passes.
    backoff: Option<Duration>,
    /// Held from a round in which the server let nothing pass until one in which it does.
    trouble: Option<InTrouble>,
}

/// Outcome of one round.
#[derive(Default)]
struct Round {
    has_passed: bool,
    /// Error of the server, if there was one.
    refused: Option<StoreError>,
}

impl<I: Send + Sync + 'static, R: Send + 'static, F, Fut> Lane<I, R, F>
where
    F: Fn(Vec<Arc<I>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<Flushed<R>>, StoreError>> + Send + 'static,
{
    async fn run(self) {
        let mut kept = Kept { items: Vec::new(), backoff: None, trouble: None };
        while let Some((batch, _turn)) = self.next_batch(&mut kept).await {
            let round = self.flush_round(batch, &mut kept.items).await;
            let Some(error) = round.refused.filter(|_| !round.has_passed) else {
                (kept.backoff, kept.trouble) = (None, None);
                continue;
            };
            kept.backoff = Some(kept.backoff.map_or(MIN_BACKOFF, |before| (before * 2).min(MAX_BACKOFF)));
            let is_trouble = !matches!(error, StoreError::LeaseStale);
            kept.trouble = is_trouble.then(|| self.trouble.enter(kept.trouble.take(), self.limits.what, &error));
        }
    }

    /// The next batch, when it is this lane's turn: waiting items and kept ones that are due. Items whose caller
    /// is gone are dropped.
    async fn next_batch(&self, kept: &mut Kept<I, R>) -> Option<(Vec<Waiting<I, R>>, Turn)> {
        let waiting = |(item, reply)| Waiting { item, reply, failing: None, locked_since: None };
        loop {
            kept.items.retain(|one| !one.reply.is_closed());
            let mut new = Vec::new();
            let turn = if kept.items.is_empty() {
                // Without items, nothing would report the end of the outage.
                (kept.backoff, kept.trouble) = (None, None);
                let mut receiver = self.receiver.lock().await;
                new.push(receiver.recv().await?);
                let turn = self.turns.next().await;
                while new.len() < self.limits.max_items
                    && let Ok(one) = receiver.try_recv()
                {
                    new.push(one);
                }
                turn
            } else {
                // Takes new items during the pause, but does not wait for them. The timeout covers the receiver's
                // lock too: an idle lane holds it until an item comes.
                sleep(kept.backoff.unwrap_or_default()).await;
                let pause = kept.items.iter().map(Waiting::pause).min().unwrap_or_default();
                let room = self.limits.max_items.saturating_sub(kept.items.len());
                if room > 0 {
                    let more = async { self.receiver.lock().await.recv_many(&mut new, room).await };
                    let _ = timeout(pause, more).await;
                } else {
                    sleep(pause).await;
                }
                self.turns.next().await
            };
            let (mut batch, later) = std::mem::take(&mut kept.items).into_iter().partition(Waiting::is_due);
            kept.items = later;
            Vec::extend(&mut batch, new.into_iter().map(waiting));
            batch.retain(|one| !one.reply.is_closed());
            if !batch.is_empty() {
                return Some((batch, turn));
            }
        }
    }

    /// Flushes a batch in parts: by size; in halves while Postgres refuses the values or the amount, or fails the
    /// same items again; items that failed alone each by itself, after the others. Items to be repeated go to
    /// `kept`.
    async fn flush_round(&self, batch: Vec<Waiting<I, R>>, kept: &mut Vec<Waiting<I, R>>) -> Round {
        let mut round = Round::default();
        let (lone, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(|one| one.lone().is_some());
        let mut parts: Vec<Vec<_>> = lone.into_iter().map(|one| vec![one]).collect();
        parts.extend(self.cut(others).into_iter().rev());
        while let Some(mut part) = parts.pop() {
            let error = match self.flush_part(&part).await {
                Ok(flushed) => {
                    round.has_passed |= self.answer(part, flushed, kept);
                    continue;
                }
                Err(error) => error,
            };
            let is_known = part.iter().all(|one| one.failing.is_some());
            // Only a second failure tells a statement that breaks its connection from a server that is away.
            let may_be_too_much = matches!(error, StoreError::Unavailable(_)) && is_known;
            let is_of_items = matches!(error, StoreError::Rejected(_) | StoreError::TooMuch(_)) || may_be_too_much;
            if is_of_items && part.len() > 1 {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
                continue;
            }
            if !error.is_retryable() {
                part.into_iter().for_each(|one| drop(one.reply.send(Err(error.clone()))));
                continue;
            }
            let is_lone = part.len() == 1 && matches!(error, StoreError::TooMuch(_) | StoreError::Unavailable(_));
            kept.extend(part.into_iter().filter_map(|one| self.keep(one, &error, is_lone)));
            let is_outage = !round.has_passed;
            round.refused = Some(error);
            if is_outage {
                // The rest would meet the same error, and must not be blamed for it.
                kept.extend(parts.into_iter().flatten());
                break;
            }
        }
        round
    }

    /// Splits items into parts of at most [`MAX_BYTES`], or of one item.
    fn cut(&self, items: Vec<Waiting<I, R>>) -> Vec<Vec<Waiting<I, R>>> {
        let (mut parts, mut bytes) = (Vec::<Vec<_>>::new(), usize::MAX);
        for one in items {
            let size = (self.bytes)(&one.item);
            bytes = bytes.saturating_add(size);
            match parts.last_mut() {
                Some(part) if bytes <= MAX_BYTES => part.push(one),
                Some(_) | None => {
                    bytes = size;
                    parts.push(vec![one]);
                }
            }
        }
        parts
    }

    async fn flush_part(&self, part: &[Waiting<I, R>]) -> Result<Vec<Flushed<R>>, StoreError> {
        let started = Instant::now();
        let flushing = (self.flush)(part.iter().map(|one| one.item.clone()).collect());
        let flushed = self.trouble.on_one_server(flushing).await;
        metrics::store_batch(self.limits.what, part.len(), started.elapsed());
        flushed
    }

    /// Answers each item; returns true if any was committed.
    fn answer(&self, part: Vec<Waiting<I, R>>, flushed: Vec<Flushed<R>>, kept: &mut Vec<Waiting<I, R>>) -> bool {
        let mut has_passed = false;
        for (one, flushed) in part.into_iter().zip(flushed) {
            match flushed {
                Flushed::Done(result) => {
                    has_passed |= result.is_ok();
                    // The caller may be gone; the write stands all the same.
                    drop(one.reply.send(result));
                }
                Flushed::Locked => {
                    let since = one.locked_since.unwrap_or_else(Instant::now);
                    if since.elapsed() < self.limits.patience {
                        kept.push(Waiting { failing: None, locked_since: Some(since), ..one });
                    } else {
                        drop(one.reply.send(Err(StoreError::LeaseStale)));
                    }
                }
            }
        }
        self.passed.fetch_add(u64::from(has_passed), Ordering::Relaxed);
        has_passed
    }

    /// Records a failure that may pass. Returns `None` if the item is given up: its patience is over, or it alone
    /// fails.
    fn keep(&self, one: Waiting<I, R>, error: &StoreError, is_lone: bool) -> Option<Waiting<I, R>> {
        let mut failing = one.failing.unwrap_or(Failing { since: Instant::now(), lone: None });
        if is_lone {
            let passed = self.passed.load(Ordering::Relaxed);
            let counted = failing.lone.map_or(0, |before| before.counted + u32::from(passed > before.passed));
            failing.lone = Some(Lone { counted, passed, retry_at: Instant::now() + MAX_BACKOFF });
            if counted >= MAX_LONE_FAILURES {
                tracing::error!(
                    batch = self.limits.what.as_str(), error = %error, "an item is refused: it alone fails"
                );
                drop(one.reply.send(Err(refusal(error))));
                return None;
            }
        }
        if failing.since.elapsed() >= self.limits.patience {
            drop(one.reply.send(Err(error.clone())));
            return None;
        }
        Some(Waiting { failing: Some(failing), locked_since: None, ..one })
    }
}

/// Turns the error of an item that alone fails into a refusal.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other error is counted")]
fn refusal(error: &StoreError) -> StoreError {
    match error {
        StoreError::TooMuch(cause) | StoreError::Unavailable(cause) => StoreError::Rejected(cause.clone()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
