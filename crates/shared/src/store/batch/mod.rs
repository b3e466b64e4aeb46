//! Group commit: items of many executions share a round trip, while each waits for its own commit.
//!
//! What must hold (core-rules 9): one bad item fails alone, one locked row delays only itself, a cut connection repeats the
//! whole batch, and repeating is harmless because every item is idempotent. A lone item is never delayed: a batch is what
//! arrived while the one before was under way. Two batches at a time would be two small ones, at nearly twice the price; the second
//! one is for when the first takes unusually long.

use std::{
    future::Future,
    sync::{Arc, Mutex as StdMutex, MutexGuard as StdMutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use super::StoreError;
use crate::telemetry::metrics::{self, StoreBatch};

/// The first wait after Postgres was away, doubled up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// The wait before a locked row is tried again.
const LOCKED_BACKOFF: Duration = Duration::from_millis(5);
/// A flush that has taken longer has nobody wait for it any more: several times what a statement of hundreds of items takes.
const UNUSUAL: Duration = Duration::from_millis(50);

/// What one flush came to for one item.
pub(super) enum Flushed<R> {
    /// Committed, or refused for good.
    Done(Result<R, StoreError>),
    /// Its row was locked; it goes into a later batch.
    Locked,
}

type Waiting<I, R> = (Arc<I>, oneshot::Sender<Result<R, StoreError>>);

/// Collects items and flushes them together. Dropping it stops its tasks.
#[derive(Debug)]
pub(super) struct Batcher<I, R> {
    items: mpsc::Sender<Waiting<I, R>>,
    _lanes: Vec<AbortOnDropHandle<()>>,
}

/// The shape of a [`Batcher`].
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    /// What is batched, for the metrics.
    pub(super) what: StoreBatch,
    /// The most items of one statement.
    pub(super) max_items: usize,
    /// Flushes under way at most: one, and another for each that takes unusually long.
    pub(super) lanes: usize,
    /// The most items waiting; beyond it callers wait in line.
    pub(super) max_waiting: usize,
    /// How long an outage of Postgres is waited out before items fail.
    pub(super) patience: Duration,
}

impl<I: Send + Sync + 'static, R: Send + 'static> Batcher<I, R> {
    /// `flush` answers one [`Flushed`] per item, in order.
    pub(super) fn spawn<F, Fut>(limits: BatchLimits, flush: F) -> Self
    where
        F: Fn(Vec<Arc<I>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Flushed<R>>, StoreError>> + Send + 'static,
    {
        let (items, receiver) = mpsc::channel(limits.max_waiting);
        let (receiver, flush) = (Arc::new(Mutex::new(receiver)), Arc::new(flush));
        let turns = Arc::new(Turns { free: Arc::new(Semaphore::new(1)), taken_at: StdMutex::new(Instant::now()) });
        let lanes = (0..limits.lanes)
            .map(|_| {
                let lane = Lane { receiver: receiver.clone(), turns: turns.clone(), flush: flush.clone(), limits };
                AbortOnDropHandle::new(tokio::spawn(lane.run()))
            })
            .collect();
        Self { items, _lanes: lanes }
    }

    /// Waits until `item` is committed or refused.
    pub(super) async fn submit(&self, item: impl Into<Arc<I>>) -> Result<R, StoreError> {
        let (reply, committed) = oneshot::channel();
        self.items.send((item.into(), reply)).await.map_err(|_| StoreError::Closed)?;
        committed.await.map_err(|_| StoreError::Closed)?
    }
}

/// Who may flush. One at a time, but a flush that takes unusually long does not count.
struct Turns {
    free: Arc<Semaphore>,
    /// When the turn under way began.
    taken_at: StdMutex<Instant>,
}

/// Held while a lane flushes. A lane that flushes beside one that takes unusually long has none.
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
                // Another one's turn came meanwhile.
                Err(_) => {}
            }
        }
    }

    fn taken_at(&self) -> StdMutexGuard<'_, Instant> {
        self.taken_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Lane<I, R, F> {
    receiver: Arc<Mutex<mpsc::Receiver<Waiting<I, R>>>>,
    turns: Arc<Turns>,
    flush: Arc<F>,
    limits: BatchLimits,
}

impl<I: Send + Sync + 'static, R: Send + 'static, F, Fut> Lane<I, R, F>
where
    F: Fn(Vec<Arc<I>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<Flushed<R>>, StoreError>> + Send + 'static,
{
    async fn run(self) {
        let mut locked: Vec<Waiting<I, R>> = Vec::new();
        while let Some((batch, _turn)) = self.next_batch(&mut locked).await {
            let (items, replies): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            for ((item, reply), flushed) in items.iter().zip(replies).zip(self.flush_all(&items).await) {
                match flushed {
                    // Nobody may be waiting any more; the write stands all the same.
                    Flushed::Done(result) => drop(reply.send(result)),
                    Flushed::Locked => locked.push((item.clone(), reply)),
                }
            }
        }
    }

    /// What is waiting when it is this lane's turn, with what was locked before. Items nobody waits for any more are left out.
    async fn next_batch(&self, locked: &mut Vec<Waiting<I, R>>) -> Option<(Vec<Waiting<I, R>>, Turn)> {
        loop {
            let mut batch = std::mem::take(locked);
            let turn = if batch.is_empty() {
                let mut receiver = self.receiver.lock().await;
                batch.push(receiver.recv().await?);
                let turn = self.turns.next().await;
                while batch.len() < self.limits.max_items
                    && let Ok(one) = receiver.try_recv()
                {
                    batch.push(one);
                }
                turn
            } else {
                // Something is locked: take what comes meanwhile, but do not wait for it. The limit holds for the receiver
                // too: an idle lane keeps it for as long as nothing comes.
                let room = self.limits.max_items.saturating_sub(batch.len()).max(1);
                let more = async { self.receiver.lock().await.recv_many(&mut batch, room).await };
                let _ = timeout(LOCKED_BACKOFF, more).await;
                self.turns.next().await
            };
            batch.retain(|(_, reply)| !reply.is_closed());
            if !batch.is_empty() {
                return Some((batch, turn));
            }
        }
    }

    /// Flushes a batch, halving it while Postgres refuses its values, until the bad items stand alone.
    async fn flush_all(&self, items: &[Arc<I>]) -> Vec<Flushed<R>> {
        let mut results = Vec::with_capacity(items.len());
        let mut halves = vec![items];
        while let Some(part) = halves.pop() {
            match self.flush_patiently(part).await {
                Ok(flushed) => results.extend(flushed),
                Err(StoreError::Rejected(_)) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    // The first half next: results stay in the order of the items.
                    halves.extend([second, first]);
                }
                Err(error) => results.extend(part.iter().map(|_| Flushed::Done(Err(error.clone())))),
            }
        }
        results
    }

    /// Repeats a flush while Postgres is away, as long as there is patience.
    async fn flush_patiently(&self, items: &[Arc<I>]) -> Result<Vec<Flushed<R>>, StoreError> {
        let give_up = Instant::now() + self.limits.patience;
        let mut backoff = MIN_BACKOFF;
        loop {
            let started = Instant::now();
            let flushed = (self.flush)(items.to_vec()).await;
            metrics::store_batch(self.limits.what, items.len(), started.elapsed());
            match flushed {
                Err(error) if error.is_retryable() && Instant::now() + backoff < give_up => {
                    tracing::debug!(error = %error, items = items.len(), "batch is repeated: the database is unavailable");
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LIMITS: BatchLimits = BatchLimits {
        what: StoreBatch::Record,
        max_items: 500,
        lanes: 1,
        max_waiting: 1_000,
        patience: Duration::from_secs(5),
    };

    fn rejected() -> StoreError {
        StoreError::Rejected(Arc::new(sqlx::Error::Protocol("poison".into())))
    }

    #[tokio::test]
    async fn one_poison_item_fails_alone() {
        let batcher = Arc::new(Batcher::spawn(LIMITS, |items: Vec<Arc<usize>>| async move {
            if items.iter().any(|item| **item == 250) {
                return Err(rejected());
            }
            Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
        }));
        let all = (0..500).map(|item| {
            let batcher = batcher.clone();
            async move { (item, batcher.submit(item).await) }
        });
        for (item, result) in futures::future::join_all(all).await {
            match result {
                Ok(same) => assert_eq!(same, item),
                Err(error) => assert!(item == 250 && matches!(error, StoreError::Rejected(_)), "{item} {error}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_waited_out_and_the_whole_batch_repeated() {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = tries.clone();
        let batcher = Batcher::spawn(LIMITS, move |items: Vec<Arc<u8>>| {
            let attempt = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                if attempt < 3 {
                    return Err(StoreError::Unavailable(Arc::new(sqlx::Error::PoolTimedOut)));
                }
                Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
            }
        });
        assert_eq!(batcher.submit(7).await.unwrap(), 7);
        assert_eq!(tries.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_during_a_flush_is_one_batch_and_does_not_wait_for_one_that_takes_unusually_long() {
        let batches = Arc::new(std::sync::Mutex::new(Vec::new()));
        let flushed = batches.clone();
        let limits = BatchLimits { lanes: 2, ..LIMITS };
        let batcher = Arc::new(Batcher::spawn(limits, move |items: Vec<Arc<u64>>| {
            flushed.lock().unwrap().push(items.len());
            async move {
                // Each item says how long its flush takes.
                let longest = items.iter().map(|item| **item).max().unwrap();
                tokio::time::sleep(Duration::from_millis(longest)).await;
                Ok(items.iter().map(|item| Flushed::Done(Ok(**item))).collect())
            }
        }));
        let submit = |millis: u64| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.submit(millis).await })
        };
        let started = Instant::now();
        let first = submit(20);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let others: Vec<_> = (0..10).map(|_| submit(1)).collect();
        first.await.unwrap().unwrap();
        futures::future::join_all(others).await;
        assert_eq!(*batches.lock().unwrap(), [1, 10]);
        assert_eq!(started.elapsed(), Duration::from_millis(21));

        let slow = submit(10_000);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let started = Instant::now();
        for _ in 0..10 {
            submit(1).await.unwrap().unwrap();
        }
        // The first waits until the slow one has taken unusually long, those after it do not.
        assert!(started.elapsed() < 2 * UNUSUAL && !slow.is_finished(), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_locked_item_does_not_delay_the_others() {
        let unlocked = Arc::new(AtomicUsize::new(0));
        let open = unlocked.clone();
        let batcher = Arc::new(Batcher::spawn(LIMITS, move |items: Vec<Arc<u8>>| {
            let open = open.load(Ordering::SeqCst) == 1;
            let one =
                move |item: &Arc<u8>| if **item == 0 && !open { Flushed::Locked } else { Flushed::Done(Ok(**item)) };
            async move { Ok(items.iter().map(one).collect()) }
        }));
        let slow = tokio::spawn({
            let batcher = batcher.clone();
            async move { batcher.submit(0).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(batcher.submit(1).await.unwrap(), 1);
        assert!(!slow.is_finished());
        unlocked.store(1, Ordering::SeqCst);
        assert_eq!(slow.await.unwrap().unwrap(), 0);
    }
}
