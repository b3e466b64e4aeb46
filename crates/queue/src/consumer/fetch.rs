//! The fetch loop: permit → reason to claim → claim → handover. One per process.
//!
//! A claim needs a reason: a wake-up, a backlog (the last claim was full), or a timer. The timers make the loop
//! independent of Redis: it claims every few seconds when idle, and twice a second while Redis is late or away. A
//! claim in flight is never cancelled, because it may have committed.

use std::sync::{Arc, atomic::Ordering};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    ConsumerConfig, Fetched,
    backend::{ClaimedItem, Handover},
    wakeups::{Heard, Wakeups},
};
use longhaul_shared::telemetry::metrics::{self, ClaimReason};

pub(super) struct Fetch<T, C> {
    pub(super) config: ConsumerConfig,
    pub(super) permits: Arc<Semaphore>,
    pub(super) claim: C,
    pub(super) wakeups: Wakeups,
    pub(super) handover: Arc<Handover<T>>,
    pub(super) shutdown: CancellationToken,
}

impl<T, C, CF> Fetch<T, C>
where
    T: Send + 'static,
    C: Fn(usize) -> CF + Send + 'static,
    CF: Future<Output: Into<Fetched<T>>> + Send + 'static,
{
    /// Runs until shutdown. Returns the results of a last claim that came too late for the handover.
    pub(super) async fn run(mut self) -> Vec<ClaimedItem<T>> {
        let mut last = Last { claimed_at: None, was_full: false };
        loop {
            // Holds only one permit while waiting, because the caller may need the others.
            let Some(permit) = self.first_permit().await else { return Vec::new() };
            let Some(reason) = self.next_reason(&last).await else { return Vec::new() };
            let permits = self.more_permits(permit);
            let max = permits.num_permits();

            let Fetched { items, has_more } = (self.claim)(max).await.into();
            metrics::claims(reason, items.len());
            if !self.config.serves_all.load(Ordering::Relaxed) {
                self.wakeups.pass_on(items.len()).await;
            }
            last = Last { claimed_at: Some(Instant::now()), was_full: has_more || items.len() >= max };

            if let Err(unwanted) = self.handover.push(pair(items, permits)) {
                return unwanted;
            }
        }
    }

    /// Returns `None` on shutdown, or if the caller closed the semaphore.
    async fn first_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => None,
            permit = Arc::clone(&self.permits).acquire_owned() => permit.ok(),
        }
    }

    fn more_permits(&self, mut first: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
        let more = self.permits.available_permits().min(self.config.batch_max.saturating_sub(1));
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        // The caller may take permits in between. Then one permit suffices.
        if let Ok(more) = Arc::clone(&self.permits).try_acquire_many_owned(more) {
            first.merge(more);
        }
        first
    }

    /// Waits for a reason to claim. Returns `None` on shutdown.
    async fn next_reason(&mut self, last: &Last) -> Option<ClaimReason> {
        let count = (self.permits.available_permits() + 1).min(self.config.batch_max);
        let shutdown = self.shutdown.clone();
        if last.was_full && !shutdown.is_cancelled() {
            // The next claim serves these wake-ups. Left in the list, they would cause claims that find nothing.
            self.wakeups.discard(count).await;
            return (!shutdown.is_cancelled()).then_some(ClaimReason::Backlog);
        }
        loop {
            let (wait_until, poll_at) = self.clocks(last);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                heard = self.wakeups.listen(count) => return Some(match heard {
                    Heard::Wakeups => ClaimReason::Wakeup,
                    Heard::Away => ClaimReason::Poll,
                }),
                () = sleep_until(wait_until) => {
                    if Instant::now() >= poll_at {
                        return Some(ClaimReason::Poll);
                    }
                }
            }
        }
    }

    /// Returns the time of the next timer check, and the time of the next poll.
    fn clocks(&self, last: &Last) -> (Instant, Instant) {
        let now = Instant::now();
        let Some(claimed_at) = last.claimed_at else { return (now, now) };
        let late_at = self.wakeups.late_at().unwrap_or(now);
        if late_at <= now {
            let poll_at = claimed_at + self.config.poll_away;
            return (poll_at, poll_at);
        }
        let poll_at = claimed_at + self.config.poll_idle;
        (poll_at.min(late_at), poll_at)
    }
}

struct Last {
    /// `None` before the first claim, which needs no reason: there may be work from before this process.
    claimed_at: Option<Instant>,
    was_full: bool,
}

/// Pairs each item with a permit. Items beyond the permits break the contract of `claim`; they are dropped here,
/// and the reconciliation of the worker with the database releases them within seconds.
fn pair<T>(items: Vec<T>, mut permits: OwnedSemaphorePermit) -> Vec<ClaimedItem<T>> {
    let claimed = items.len();
    let held: Vec<_> =
        items.into_iter().map_while(|item| permits.split(1).map(|permit| ClaimedItem::new(item, permit))).collect();
    if held.len() < claimed {
        tracing::error!(claimed, permits = held.len(), "a claim brought more executions than it was allowed to");
    }
    held
}
