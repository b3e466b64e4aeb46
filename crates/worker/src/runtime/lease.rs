//! The worker's lease as an attempt sees it: permission to launch, and reasons to end early.
//!
//! A lease can be *lost* or *stale*. Lost is a fact of the database: the worker's row is dead, its executions
//! belong to other workers, and the attempt stops at once. Stale is doubt: the last renewal is too old (Postgres is
//! down, or this process was paused), so nothing is launched until a renewal succeeds. A stale lease recovers, a
//! lost one does not (core-rules 2, 4).

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI16, Ordering},
    },
    time::Duration,
};

use longhaul_sdk::{Interrupt, Step};
use longhaul_shared::domain::{ExecutionId, LeaseToken};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::moment::Moment;

/// The lease of one worker identity, as this process knows it.
#[derive(Debug)]
pub(crate) struct WorkerLease {
    valid_until: watch::Sender<Moment>,
    steady_since: Mutex<Option<Moment>>,
    lost: CancellationToken,
}

impl WorkerLease {
    /// A lease of duration `lease`, counted from when it was requested.
    pub(crate) fn new(asked_at: Moment, lease: Duration) -> Self {
        Self {
            valid_until: watch::Sender::new(asked_at + lease),
            steady_since: Mutex::new(Some(asked_at)),
            lost: CancellationToken::new(),
        }
    }

    /// Records a successful renewal that was sent at `asked_at`.
    pub(crate) fn renewed(&self, asked_at: Moment, lease: Duration) {
        self.valid_until.send_replace(asked_at + lease);
        self.steady_since.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(asked_at);
    }

    /// Records a failed renewal.
    pub(crate) fn faltered(&self) {
        *self.steady_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Time that renewals have gone without a gap. Only a steady worker may declare others dead (core-rules 4).
    pub(crate) fn steady_for(&self) -> Duration {
        let since = *self.steady_since.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stale() { Duration::ZERO } else { since.map_or(Duration::ZERO, |since| since.elapsed()) }
    }

    pub(crate) fn is_stale(&self) -> bool {
        *self.valid_until.borrow() <= Moment::now()
    }

    /// Marks the worker identity as dead.
    pub(crate) fn lose(&self) {
        self.lost.cancel();
    }

    pub(crate) async fn lost(&self) {
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
pub(crate) struct AttemptControl {
    pub(crate) token: LeaseToken,
    lane: AtomicI16,
    interrupt: watch::Sender<Option<Interrupt>>,
    draining: CancellationToken,
    lease: Arc<WorkerLease>,
}

impl AttemptControl {
    /// Ends the attempt at once; the first reason is kept.
    pub(crate) fn interrupt(&self, reason: Interrupt) {
        self.interrupt.send_if_modified(|current| {
            let is_first = current.is_none();
            *current = current.or(Some(reason));
            is_first
        });
    }

    /// Clears the execution of suspicion, because it recorded a step (core-rules 5). Its place among the suspects
    /// is free for the next one, so that the many innocents held by a killed worker pass quickly.
    pub(crate) fn clear(&self) {
        self.lane.store(0, Ordering::Relaxed);
    }

    /// True if the execution was held by workers that died and has recorded no step since.
    pub(crate) fn is_suspect(&self) -> bool {
        self.lane.load(Ordering::Relaxed) > 0
    }

    /// Waits until the attempt must end at once; returns the reason.
    pub(crate) async fn interrupted(&self) -> Interrupt {
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
    pub(crate) async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Waits for permission to launch a model or tool call; required before every launch.
    pub(crate) async fn may_launch(&self) -> Step<()> {
        tokio::select! {
            biased;
            () = self.draining() => Err(Interrupt::Draining.into()),
            fresh = self.lease.fresh() => fresh,
        }
    }
}

/// Leases that this process holds. Every few seconds they are compared with the database; leases that only the
/// database knows are handed back (core-rules 1).
#[derive(Debug)]
pub(crate) struct HeldLeases {
    leases: Mutex<Leases>,
    lease: Arc<WorkerLease>,
    draining: CancellationToken,
}

/// Leases that are held, and those given up although a claim may still return them. Both are under one lock, so
/// that a lease is either started or handed back, never both.
#[derive(Debug, Default)]
struct Leases {
    attempts: HashMap<ExecutionId, Arc<AttemptControl>>,
    given_up: HashSet<LeaseToken>,
}

impl HeldLeases {
    pub(crate) fn new(lease: Arc<WorkerLease>, draining: CancellationToken) -> Self {
        Self { leases: Mutex::default(), lease, draining }
    }

    /// Registers a claimed lease. Returns `None` if the claim's reply was so late that the lease is being handed
    /// back.
    pub(crate) fn enter(&self, id: ExecutionId, token: LeaseToken, lane: i16) -> Option<Arc<AttemptControl>> {
        let mut leases = self.leases();
        if leases.given_up.contains(&token) {
            return None;
        }
        let control = Arc::new(AttemptControl {
            token,
            lane: AtomicI16::new(lane),
            interrupt: watch::Sender::new(None),
            draining: self.draining.clone(),
            lease: self.lease.clone(),
        });
        leases.attempts.insert(id, control.clone());
        Some(control)
    }

    /// Removes a lease that has ended.
    pub(crate) fn leave(&self, id: ExecutionId, token: LeaseToken) {
        let attempts = &mut self.leases().attempts;
        if attempts.get(&id).is_some_and(|control| control.token == token) {
            attempts.remove(&id);
        }
    }

    pub(crate) fn get(&self, id: ExecutionId, token: LeaseToken) -> Option<Arc<AttemptControl>> {
        self.leases().attempts.get(&id).filter(|control| control.token == token).cloned()
    }

    /// Marks a lease that this process does not hold as handed back, so that a late claim reply cannot start it.
    /// Returns false if it was registered meanwhile.
    pub(crate) fn give_up(&self, id: ExecutionId, token: LeaseToken) -> bool {
        let mut leases = self.leases();
        if leases.attempts.get(&id).is_some_and(|control| control.token == token) {
            return false;
        }
        leases.given_up.insert(token);
        true
    }

    /// Forgets leases given up so far. Called when no claim is under way that could return them.
    pub(crate) fn claimed(&self) {
        self.leases().given_up.clear();
    }

    /// Number of suspects held (core-rules 5).
    pub(crate) fn suspects(&self) -> i32 {
        let count = self.leases().attempts.values().filter(|control| control.lane.load(Ordering::Relaxed) > 0).count();
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    /// True if one of the suspects must run alone.
    pub(crate) fn holds_alone(&self) -> bool {
        self.leases().attempts.values().any(|control| control.lane.load(Ordering::Relaxed) > 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.leases().attempts.len()
    }

    /// Ends every attempt at once.
    pub(crate) fn interrupt_all(&self, reason: Interrupt) {
        for control in self.leases().attempts.values() {
            control.interrupt(reason);
        }
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        // Every use makes one change to one collection, so a panic leaves no partial update.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// A drain must not wait for a renewal that may never come.
    #[tokio::test]
    async fn drain_ends_the_wait_for_a_stale_lease() {
        let lease = Arc::new(WorkerLease::new(Moment::now(), Duration::ZERO));
        let draining = CancellationToken::new();
        let held = HeldLeases::new(lease, draining.clone());
        let control = held.enter(ExecutionId(Uuid::nil()), LeaseToken(Uuid::nil()), 0).unwrap();
        let launch = tokio::spawn(async move { control.may_launch().await });
        tokio::task::yield_now().await;
        assert!(!launch.is_finished(), "nothing is launched under a stale lease");
        draining.cancel();
        assert_eq!(launch.await.unwrap(), Err(Interrupt::Draining.into()));
    }

    #[tokio::test]
    async fn lease_is_either_started_or_handed_back() {
        let lease = Arc::new(WorkerLease::new(Moment::now(), Duration::from_secs(60)));
        let held = HeldLeases::new(lease, CancellationToken::new());
        let (id, late, early) = (ExecutionId(Uuid::nil()), LeaseToken(Uuid::new_v4()), LeaseToken(Uuid::new_v4()));

        // The reconciler decides before the claim's reply is read: its lease is not started.
        assert!(held.give_up(id, late));
        assert!(held.enter(id, late, 0).is_none());
        assert_eq!(held.len(), 0);
        held.claimed();

        // The reverse order: a registered lease is not handed back, even if the reconciler read the database
        // before.
        assert!(held.enter(id, early, 0).is_some());
        assert!(!held.give_up(id, early));
        assert!(held.get(id, early).is_some());
    }
}
