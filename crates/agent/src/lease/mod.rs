//! The worker's lease as an attempt sees it: permission to launch, and reasons to end early.
//!
//! A lease can be *lost* or *stale*. Lost is a fact of the database: the worker's row is dead, its executions
//! belong to other workers, and the attempt stops at once. Stale is doubt: the last renewal is too old (Postgres is
//! down, or this process was paused), so nothing is launched until a renewal succeeds. A stale lease recovers, a
//! lost one does not (core-rules 2, 4).

pub mod moment;
pub mod suspects;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI16, Ordering},
    },
    time::Duration,
};

use longhaul_domain::LeaseToken;
use longhaul_sdk::{Interrupt, Step};
use longhaul_store::executions::claims::Lane;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::moment::Moment;

/// The lease of one worker identity, as this process knows it.
#[derive(Debug)]
pub struct WorkerLease {
    valid_until: watch::Sender<Moment>,
    steady_since: Mutex<Option<Moment>>,
    lost: CancellationToken,
}

impl WorkerLease {
    /// A lease of duration `lease`, counted from when it was requested.
    pub fn new(asked_at: Moment, lease: Duration) -> Self {
        Self {
            valid_until: watch::Sender::new(asked_at + lease),
            steady_since: Mutex::new(Some(asked_at)),
            lost: CancellationToken::new(),
        }
    }

    /// Records a successful renewal that was sent at `asked_at`.
    pub fn renewed(&self, asked_at: Moment, lease: Duration) {
        self.valid_until.send_replace(asked_at + lease);
        self.steady_since.lock().get_or_insert(asked_at);
    }

    /// Records a failed renewal.
    pub fn faltered(&self) {
        *self.steady_since.lock() = None;
    }

    /// Time that renewals have gone without a gap. Only a steady worker may declare others dead (core-rules 4).
    pub fn steady_for(&self) -> Duration {
        let since = *self.steady_since.lock();
        if self.is_stale() { Duration::ZERO } else { since.map_or(Duration::ZERO, |since| since.elapsed()) }
    }

    /// True if the last renewal is too old.
    pub fn is_stale(&self) -> bool {
        *self.valid_until.borrow() <= Moment::now()
    }

    /// Marks the worker identity as dead.
    pub fn lose(&self) {
        self.lost.cancel();
    }

    /// Waits until the worker identity is known to be dead.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Waits until a launch is allowed: immediately while the lease is valid, after the next renewal while it is
    /// stale.
    async fn fresh(&self) -> Step<()> {
        let mut valid_until = self.valid_until.subscribe();
        loop {
            if self.lost.is_cancelled() {
                return Err(Interrupt::LeaseLost.into());
            }
            if *valid_until.borrow_and_update() > Moment::now() {
                return Ok(());
            }
            tokio::select! {
                () = self.lost() => {}
                changed = valid_until.changed() => if changed.is_err() { return Err(Interrupt::LeaseLost.into()) },
            }
        }
    }
}

/// Control of one attempt from the rest of the worker.
#[derive(Debug)]
pub struct AttemptControl {
    /// Token that fences the attempt's writes.
    pub token: LeaseToken,
    lane: AtomicI16,
    interrupt: watch::Sender<Option<Interrupt>>,
    draining: CancellationToken,
    lease: Arc<WorkerLease>,
}

impl AttemptControl {
    /// Control of an attempt under `lease`. Its `lane` says if it is a suspect.
    #[must_use]
    pub fn new(token: LeaseToken, lane: Lane, draining: CancellationToken, lease: Arc<WorkerLease>) -> Self {
        Self { token, lane: AtomicI16::new(lane as i16), interrupt: watch::Sender::new(None), draining, lease }
    }

    /// Ends the attempt at once; the first reason is kept.
    pub fn interrupt(&self, reason: Interrupt) {
        self.interrupt.send_if_modified(|current| {
            let is_first = current.is_none();
            *current = current.or(Some(reason));
            is_first
        });
    }

    /// Clears the execution of suspicion, because it recorded a step (core-rules 5). Its place among the suspects
    /// is free for the next one, so that the many innocents held by a killed worker pass quickly.
    pub fn clear(&self) {
        self.lane.store(Lane::Normal as i16, Ordering::Relaxed);
    }

    /// True if the execution was held by workers that died and has recorded no step since.
    pub fn is_suspect(&self) -> bool {
        self.lane.load(Ordering::Relaxed) != Lane::Normal as i16
    }

    /// True if the execution is a suspect that must run alone.
    #[must_use]
    pub fn runs_alone(&self) -> bool {
        self.lane.load(Ordering::Relaxed) == Lane::Alone as i16
    }

    /// Waits until the attempt must end at once; returns the reason.
    pub async fn interrupted(&self) -> Interrupt {
        let mut interrupt = self.interrupt.subscribe();
        let interrupted = async {
            match interrupt.wait_for(Option::is_some).await {
                Ok(reason) => reason.unwrap_or(Interrupt::LeaseLost),
                Err(_) => Interrupt::LeaseLost,
            }
        };
        tokio::select! {
            reason = interrupted => reason,
            () = self.lease.lost() => Interrupt::LeaseLost,
        }
    }

    /// Waits until the worker drains.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Waits for permission to launch a model or tool call; required before every launch.
    ///
    /// # Errors
    /// An interrupt: the lease is lost or the worker is draining.
    pub async fn may_launch(&self) -> Step<()> {
        tokio::select! {
            biased;
            () = self.draining() => Err(Interrupt::Draining.into()),
            fresh = self.lease.fresh() => fresh,
        }
    }
}
