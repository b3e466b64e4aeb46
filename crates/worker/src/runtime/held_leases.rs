//! The leases that this process holds.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use longhaul_agent::lease::{AttemptControl, WorkerLease};
use longhaul_domain::{ExecutionId, LeaseToken};
use longhaul_sdk::Interrupt;
use longhaul_store::executions::claims::Lane;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// Maximum suspects held at a time, so that the one that kills takes few others along (core-rules 5).
const MAX_SUSPECTS: i32 = 4;

/// Leases that this process holds. Every few seconds they are compared with the database; leases that only the
/// database knows are handed back (core-rules 1).
#[derive(Debug)]
pub(crate) struct HeldLeases {
    leases: Mutex<Leases>,
    lease: Arc<WorkerLease>,
    draining: CancellationToken,
    prefers_alone: AtomicBool,
}

/// Suspects that the next claim may take.
pub(crate) struct SuspectRoom {
    pub(crate) suspects: i32,
    /// True if one that must run alone may be claimed.
    pub(crate) may_take_alone: bool,
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
        Self { leases: Mutex::default(), lease, draining, prefers_alone: AtomicBool::new(false) }
    }

    /// Registers a claimed lease. Returns `None` if the claim's reply was so late that the lease is being handed
    /// back.
    pub(crate) fn enter(&self, id: ExecutionId, token: LeaseToken, lane: Lane) -> Option<Arc<AttemptControl>> {
        let mut leases = self.leases();
        if leases.given_up.contains(&token) {
            return None;
        }
        let control = Arc::new(AttemptControl::new(token, lane, self.draining.clone(), self.lease.clone()));
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

    /// Room for suspects beside those held. Without a suspect in the process, claims alternate between several
    /// suspects and one that must run alone.
    pub(crate) fn room_for_suspects(&self) -> SuspectRoom {
        let (mut held, mut is_alone_held) = (0, false);
        for control in self.leases().attempts.values().filter(|control| control.is_suspect()) {
            held += 1;
            is_alone_held |= control.runs_alone();
        }
        let may_take_alone = held == 0 && !self.prefers_alone.fetch_xor(true, Ordering::Relaxed);
        let suspects = if may_take_alone || is_alone_held { 0 } else { (MAX_SUSPECTS - held).max(0) };
        SuspectRoom { suspects, may_take_alone }
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
        self.leases.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_agent::lease::moment::Moment;
    use uuid::Uuid;

    use super::*;

    /// A drain must not wait for a renewal that may never come.
    #[tokio::test]
    async fn drain_ends_the_wait_for_a_stale_lease() {
        let lease = Arc::new(WorkerLease::new(Moment::now(), Duration::ZERO));
        let draining = CancellationToken::new();
        let held = HeldLeases::new(lease, draining.clone());
        let control = held.enter(ExecutionId(Uuid::nil()), LeaseToken(Uuid::nil()), Lane::Normal).unwrap();
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
        assert!(held.enter(id, late, Lane::Normal).is_none());
        assert_eq!(held.len(), 0);
        held.claimed();

        // The reverse order: a registered lease is not handed back, even if the reconciler read the database
        // before.
        assert!(held.enter(id, early, Lane::Normal).is_some());
        assert!(!held.give_up(id, early));
        assert!(held.get(id, early).is_some());
    }
}
