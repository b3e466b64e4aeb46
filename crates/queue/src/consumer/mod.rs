//! Consumes executions: permit → wake-up or poll → claim → handler, one loop per process.
//!
//! `wakeups` says when to claim; `apalis_worker` runs each handler in a tokio task of its own.
//!
//! Invariants:
//! - nothing is claimed without a permit, and a permit is held until the handler returns it or ends;
//! - the last `kept` free permits are for newcomers (tenants that hold none here), also those that they released;
//! - no late, wrong or missing reply of Redis delays a claim by more than a second or ends a handler;
//! - executions claimed but not started when shutdown begins are passed to `release` at once;
//! - dropping the future of `run` aborts all running handlers.
//!
//! Retries and timeouts are not part of this module, but of Postgres: apalis layers would hold a slot while waiting
//! and lose their state in a crash. Nor are business outcomes: handlers return none.

mod apalis_worker;
mod config;
mod waiter;
mod wakeups;

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use apalis_core::monitor::MonitorError;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::QueueError;
pub use config::ConsumerConfig;
pub use waiter::Waiter;

use apalis_worker::{ClaimedItem, Handover, monitor};
use longhaul_telemetry::metrics::{self, ClaimReason};
use wakeups::Wakeups;

/// Least time between two looks for newcomers that found none.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Permits that a claim may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// So many, for any tenant.
    Open(usize),
    /// One of the kept part, for a tenant that holds none here.
    Kept,
}

impl Room {
    fn permits(self) -> usize {
        match self {
            Self::Open(permits) => permits,
            Self::Kept => 1,
        }
    }
}

/// Result of a claim.
#[derive(Debug)]
pub struct Fetched<T> {
    /// Claimed executions, each to run under one permit.
    pub items: Vec<T>,
    /// True if there may be more: claim again as soon as a permit is free.
    pub has_more: bool,
    /// False if no claim was made, because it would find nothing or may not be made.
    pub has_claimed: bool,
}

impl<T> Fetched<T> {
    /// No claim was made.
    #[must_use]
    pub fn nothing() -> Self {
        Self { items: Vec::new(), has_more: false, has_claimed: false }
    }
}

impl<T> From<Vec<T>> for Fetched<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, has_more: false, has_claimed: true }
    }
}

/// Consumes until `shutdown`, then releases executions that have not started and waits for the running handlers.
/// The caller limits that wait, through a signal to the handlers or by dropping this future.
///
/// - `permits`: limits the handlers that run and have not given their permit back, [`ConsumerConfig::kept`] included.
///   The caller may take some away at any time.
/// - `claim(room)`: claims executions in one statement, up to the permits of `room`, which are never zero. It handles
///   its own errors: it then returns nothing and is called again soon. Shutdown does not cancel it, so it must bound
///   its duration.
/// - `release(items)`: releases executions that were claimed and not started.
/// - `handler(item, permit)`: runs one execution, and holds the permit for as long as no other may take its place.
///   A panic in it is logged and counted, and does not affect others.
///
/// # Errors
/// [`QueueError`] if the configuration is unusable, or if a part ended unexpectedly (a panic in `claim`, a stopped
/// apalis worker). The process then no longer works and should exit with a failure.
pub async fn run<T, C, CF, R, RF, H, HF>(
    config: ConsumerConfig,
    permits: Arc<Semaphore>,
    claim: C,
    release: R,
    handler: H,
    shutdown: CancellationToken,
) -> Result<(), QueueError>
where
    T: Send + 'static,
    C: Fn(Room) -> CF + Send + 'static,
    CF: Future<Output: Into<Fetched<T>>> + Send + 'static,
    R: Fn(Vec<T>) -> RF + Send + Sync + 'static,
    RF: Future<Output = ()> + Send + 'static,
    H: Fn(T, OwnedSemaphorePermit) -> HF + Clone + Send + Sync + 'static,
    HF: Future<Output = ()> + Send + 'static,
{
    if config.queues.is_empty() {
        return Err(QueueError::NoQueues);
    }
    let wakeups = Wakeups::new(&config)?;
    let handover = Arc::new(Handover::new());
    let monitor = monitor(Arc::clone(&handover), handler);
    let worker = monitor.context();
    let fetch = Fetch { config, permits, claim, wakeups, handover: Arc::clone(&handover), shutdown: shutdown.clone() };
    let mut fetching = AbortOnDropHandle::new(tokio::spawn(fetch.run()));
    let mut running = pin!(monitor.run());

    let mut fetched = None;
    tokio::select! {
        // `biased`, shutdown first: the monitor must not start executions that a claim returns during shutdown.
        biased;
        () = shutdown.cancelled() => {}
        ended = &mut fetching => fetched = Some(ended),
        ended = &mut running => {
            fetching.abort();
            release_all(&release, handover.close()).await;
            return Err(monitor_ended(ended));
        }
    }

    // Close first: from here on nothing starts, including the results of a claim in flight.
    let unstarted = handover.close();
    if !shutdown.is_cancelled() {
        release_all(&release, unstarted).await;
        return Err(QueueError::FetchEnded(fetched.and_then(Result::err)));
    }
    let _ = worker.shutdown();
    let releasing = async {
        release_all(&release, unstarted).await;
        let late = match fetched {
            Some(ended) => ended,
            None => fetching.await,
        };
        release_all(&release, late.map_err(|error| QueueError::FetchEnded(Some(error)))?).await;
        Ok(())
    };
    let (released, ran) = tokio::join!(releasing, running);
    released?;
    ran.map_err(|error| monitor_ended(Err(error)))
}

/// The loop that claims.
struct Fetch<T, C> {
    config: ConsumerConfig,
    permits: Arc<Semaphore>,
    claim: C,
    wakeups: Wakeups,
    handover: Arc<Handover<T>>,
    shutdown: CancellationToken,
}

impl<T, C, CF> Fetch<T, C>
where
    C: Fn(Room) -> CF,
    CF: Future<Output: Into<Fetched<T>>>,
{
    /// Runs until shutdown. Returns the results of a last claim that came too late for the handover.
    async fn run(mut self) -> Vec<ClaimedItem<T>> {
        let shutdown = self.shutdown.clone();
        let mut last = LastClaim { at: None, was_full: false };
        let mut look = LastLook { at: Instant::now(), has_found: false };
        loop {
            let (permits, reason) = tokio::select! {
                biased;
                () = shutdown.cancelled() => return Vec::new(),
                ready = self.permits_and_reason(&last, &look) => match ready {
                    Some(ready) => ready,
                    None => return Vec::new(),
                },
            };
            let room = if reason == ClaimReason::Newcomer { Room::Kept } else { Room::Open(permits.num_permits()) };
            // A claim in flight is never cancelled, because it may have committed.
            let Fetched { items, has_more, has_claimed } = (self.claim)(room).await.into();
            if has_claimed {
                metrics::claims(reason, items.len());
            }
            let was_full = has_more || items.len() >= room.permits();
            if room == Room::Kept {
                // The wake-ups, and the backlog that a claim for any tenant has left, are as they were.
                look = LastLook { at: Instant::now(), has_found: was_full };
            } else {
                if !self.config.serves_all.load(Ordering::Relaxed) {
                    self.wakeups.pass_on(items.len()).await;
                }
                last = LastClaim { at: Some(Instant::now()), was_full };
            }
            if let Err(unwanted) = self.handover.push(pair(items, permits)) {
                return unwanted;
            }
        }
    }

    /// Waits for a permit, then for a reason to claim, and takes the other free permits for any tenant. While only
    /// permits of the kept part are free, the reason is that a look for newcomers is due. Returns `None` if the caller
    /// closed the semaphore.
    async fn permits_and_reason(
        &mut self,
        last: &LastClaim,
        look: &LastLook,
    ) -> Option<(OwnedSemaphorePermit, ClaimReason)> {
        let kept = u32::try_from(self.config.kept).unwrap_or(u32::MAX);
        // The kept part is what remains free: whichever permit is released fills it up first.
        let open = Arc::clone(&self.permits).acquire_many_owned(kept.saturating_add(1));
        let open = tokio::select! {
            biased;
            permits = open => Some(permits.ok()?),
            // The wait for more than the kept part ends here: it would take each permit that is released.
            () = look.pause(&self.config), if kept > 0 => None,
        };
        let Some(mut permits) = open else {
            let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
            return Some((permit, ClaimReason::Newcomer));
        };
        // Holds only one permit while waiting, because the caller may need the others.
        drop(permits.split(self.config.kept));
        let free = || self.permits.available_permits().saturating_sub(self.config.kept);
        let others = || free().min(self.config.batch_max.saturating_sub(1));
        let reason = if last.was_full {
            // The next claim serves these wake-ups. Left in the list, they would cause claims that find nothing.
            self.wakeups.discard(others() + 1).await;
            ClaimReason::Backlog
        } else {
            self.wakeups.reason_to_claim(others() + 1, last.at).await
        };
        // The caller may take permits in between. Then one permit suffices.
        let others = u32::try_from(others()).unwrap_or(u32::MAX);
        if let Ok(others) = Arc::clone(&self.permits).try_acquire_many_owned(others) {
            permits.merge(others);
        }
        Some((permits, reason))
    }
}

struct LastLook {
    at: Instant,
    has_found: bool,
}

impl LastLook {
    /// Waits until the next look for newcomers.
    async fn pause(&self, config: &ConsumerConfig) {
        if self.has_found {
            return;
        }
        tokio::select! {
            () = sleep_until(self.at + config.look_every) => {}
            () = config.returned.notified() => sleep_until(self.at + LEAST_PAUSE).await,
        }
    }
}

struct LastClaim {
    /// `None` before the first claim, which needs no reason: there may be work from before this process.
    at: Option<Instant>,
    was_full: bool,
}

/// Pairs each item with a permit. Items beyond the permits break the contract of `claim`; they are dropped here,
/// and the reconciliation of the worker with the database releases them within seconds.
fn pair<T>(items: Vec<T>, mut permits: OwnedSemaphorePermit) -> Vec<ClaimedItem<T>> {
    let claimed = items.len();
    let held: Vec<_> =
        items.into_iter().map_while(|item| permits.split(1).map(|permit| ClaimedItem { item, permit })).collect();
    if held.len() < claimed {
        tracing::error!(claimed, permits = held.len(), "a claim brought more executions than it was allowed to");
    }
    held
}

async fn release_all<T, RF: Future<Output = ()>>(release: &impl Fn(Vec<T>) -> RF, held: Vec<ClaimedItem<T>>) {
    if held.is_empty() {
        return;
    }
    let (items, _permits): (Vec<T>, Vec<_>) = held.into_iter().map(|held| (held.item, held.permit)).unzip();
    metrics::unstarted_released(items.len());
    release(items).await;
}

fn monitor_ended(ended: Result<(), MonitorError>) -> QueueError {
    let reason = ended.err().map_or_else(|| "no error given".to_owned(), |error| error.to_string());
    QueueError::MonitorEnded { reason }
}
