//! The store's statements, one lock at a time, as under READ COMMITTED.
//!
//! A statement takes its snapshot when it begins. Then it locks the worker's row and the rows it writes (it waits
//! for them or skips them) and checks the newest version of each locked row. All other reads use the older
//! snapshot. Its writes become visible when it commits, which also releases its locks.
//!
//! The file is long because it is one protocol: each statement's locks are read beside those of the others.

use std::fmt;

use crate::{
    rows::{Asked, Execution, Parked, State, Wait},
    scenario::{Broken, Scenario, Work},
};

/// The lease that a write names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseName {
    /// The worker that writes.
    pub by: u8,
    /// The execution.
    pub execution: u8,
    /// The fencing token.
    pub token: u8,
}

/// Outcome with which a lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// FINISHED.
    Finish,
    /// FAILED `cancelled`.
    Cancel,
    /// Parked, with the wake counter that was read before the condition was checked.
    Park(Wait, u8),
    /// Runnable again.
    Release,
}

/// A numbered write of a lease, with one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Write {
    /// The number of the write, from 1.
    pub number: u8,
    /// The number of the step, from 0.
    pub step: u8,
}

/// The end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ending {
    pub verb: Verb,
    /// The last write of the lease, if it is committed with the end.
    pub write: Option<Write>,
}

impl Ending {
    /// An end without a write.
    #[must_use]
    pub fn alone(verb: Verb) -> Self {
        Self { verb, write: None }
    }
}

/// One statement of `shared::store`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Statement {
    /// `sql/claim.sql`, for one execution.
    Claim {
        /// The claiming worker.
        by: u8,
        /// The execution that the scan finds.
        execution: u8,
    },
    /// `sql/record.sql`: a write of a lease, with a settlement for an execution that pays.
    Record {
        /// The lease.
        lease: LeaseName,
        /// The write.
        write: Write,
    },
    /// `sql/conclude.sql`.
    Conclude {
        /// The lease.
        lease: LeaseName,
        /// The outcome, and the last write.
        ending: Ending,
    },
    /// `sql/request.sql`.
    Request {
        /// The lease.
        lease: LeaseName,
    },
    /// `sql/spawn.sql`.
    Spawn {
        /// The parent's lease.
        lease: LeaseName,
    },
    /// `longhaul_reserve`.
    Reserve {
        /// The lease.
        lease: LeaseName,
    },
    /// `longhaul_fold_budget`, after a settlement or from the sweep.
    Fold,
    /// `longhaul_raise_budget`.
    Raise,
    /// `HeartbeatConnection::renew` of an expired lease: `for key share` on the worker's row, then its row in
    /// `worker_heartbeats`.
    Renew {
        /// The worker.
        worker: u8,
    },
    /// `longhaul_bury`: locks the worker's row, then rechecks its heartbeat and counts its suspects.
    Bury {
        /// The worker.
        worker: u8,
    },
    /// `sql/reap.sql`.
    Reap {
        /// The execution.
        execution: u8,
    },
    /// `sql/wake_due.sql`.
    WakeDue {
        /// The execution.
        execution: u8,
    },
    /// `longhaul_hand_over`: gives a free slot to an execution that waits for one and makes it runnable (core-rules
    /// 12, ADR 13).
    HandOver {
        /// The execution.
        execution: u8,
    },
    /// `sql/cancel.sql`, for a caller.
    Cancel {
        /// The execution.
        execution: u8,
    },
    /// `sql/cancel.sql`, because the parent ends.
    CancelChild {
        /// The child.
        execution: u8,
    },
    /// `sql/decide.sql`.
    Decide {
        /// The execution that asked.
        execution: u8,
    },
}

impl Statement {
    /// Returns the lease that the statement writes under.
    #[must_use]
    pub fn lease(self) -> Option<LeaseName> {
        match self {
            Self::Record { lease, .. }
            | Self::Conclude { lease, .. }
            | Self::Request { lease }
            | Self::Spawn { lease }
            | Self::Reserve { lease } => Some(lease),
            Self::Claim { .. }
            | Self::Fold
            | Self::Raise
            | Self::Renew { .. }
            | Self::Bury { .. }
            | Self::Reap { .. }
            | Self::WakeDue { .. }
            | Self::HandOver { .. }
            | Self::Cancel { .. }
            | Self::CancelChild { .. }
            | Self::Decide { .. } => None,
        }
    }

    pub(crate) fn lease_mut(&mut self) -> Option<&mut LeaseName> {
        match self {
            Self::Record { lease, .. }
            | Self::Conclude { lease, .. }
            | Self::Request { lease }
            | Self::Spawn { lease }
            | Self::Reserve { lease } => Some(lease),
            Self::Claim { .. }
            | Self::Fold
            | Self::Raise
            | Self::Renew { .. }
            | Self::Bury { .. }
            | Self::Reap { .. }
            | Self::WakeDue { .. }
            | Self::HandOver { .. }
            | Self::Cancel { .. }
            | Self::CancelChild { .. }
            | Self::Decide { .. } => None,
        }
    }

    /// Returns the worker that sends the statement and whose row fences it.
    #[must_use]
    pub fn by(self) -> Option<u8> {
        match self {
            Self::Claim { by, .. } | Self::Renew { worker: by } => Some(by),
            Self::Record { .. }
            | Self::Conclude { .. }
            | Self::Request { .. }
            | Self::Spawn { .. }
            | Self::Reserve { .. }
            | Self::Fold
            | Self::Raise
            | Self::Bury { .. }
            | Self::Reap { .. }
            | Self::WakeDue { .. }
            | Self::HandOver { .. }
            | Self::Cancel { .. }
            | Self::CancelChild { .. }
            | Self::Decide { .. } => self.lease().map(|lease| lease.by),
        }
    }

    /// Returns the execution that the statement writes.
    #[must_use]
    pub fn execution(self) -> Option<u8> {
        match self {
            Self::Claim { execution, .. }
            | Self::Reap { execution }
            | Self::WakeDue { execution }
            | Self::HandOver { execution }
            | Self::Cancel { execution }
            | Self::CancelChild { execution }
            | Self::Decide { execution } => Some(execution),
            Self::Record { .. }
            | Self::Conclude { .. }
            | Self::Request { .. }
            | Self::Spawn { .. }
            | Self::Reserve { .. }
            | Self::Fold
            | Self::Raise
            | Self::Renew { .. }
            | Self::Bury { .. } => self.lease().map(|lease| lease.execution),
        }
    }

    /// Returns true if the statement waits for a locked row; the others skip it.
    pub(crate) fn waits(self, scenario: &Scenario) -> bool {
        match self {
            Self::Spawn { .. } | Self::Cancel { .. } | Self::Decide { .. } | Self::Raise => true,
            Self::CancelChild { .. } => scenario.is(Broken::WaitingSweep),
            Self::Claim { .. }
            | Self::Record { .. }
            | Self::Conclude { .. }
            | Self::Request { .. }
            | Self::Reserve { .. }
            | Self::Fold
            | Self::Renew { .. }
            | Self::Bury { .. }
            | Self::Reap { .. }
            | Self::WakeDue { .. }
            | Self::HandOver { .. } => false,
        }
    }

    /// Returns true if the statement locks the budget's row; it may then wake executions.
    pub(crate) fn takes_budget(self) -> bool {
        matches!(self, Self::Reserve { .. } | Self::Fold | Self::Raise)
    }
}

/// The parts of a statement's snapshot that it uses later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Snapshot {
    /// True if the row exists and matches the statement's `where`.
    pub fits: bool,
    /// The execution's row in `parked`.
    pub parked: Option<Parked>,
    /// Dead workers, as a bit set.
    pub dead: u8,
    /// Free slots, as a bit set.
    pub free: u8,
    /// Suspects of the worker in question; set only for a broken twin that counts them early.
    pub suspects: u8,
}

/// Progress of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has its snapshot.
    Begun,
    /// It has locked its worker's row; in a broken twin's cancel of a child, the parent's row.
    Fenced,
    /// It has locked the rows it writes; a claim under a limit also has this slot.
    Locked(Option<u8>),
    /// It has woken this execution, holds its row, and waits for the next one (broken twin).
    Waking(u8),
    /// It wrote nothing; its sender asks for the reason in another statement.
    Missed,
    /// It committed, and its reply is under way.
    Replied(Reply),
}

/// A reply to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// The lease of a claim.
    Claimed {
        /// Its token.
        token: u8,
        /// The wake counter.
        wake_seq: u8,
    },
    /// The write is committed.
    Recorded {
        /// The wake counter.
        wake_seq: u8,
        /// True if the attempt is to stop.
        is_cancelled: bool,
    },
    /// The lease has ended.
    Concluded,
    /// The approval request exists.
    Asked {
        /// True if it has been decided.
        is_decided: bool,
    },
    /// The child exists.
    Spawned,
    /// The call may be made.
    Granted,
    /// The reservation does not fit.
    NoBudget {
        /// The wake counter at that time.
        wake_seq: u8,
    },
    /// The execution is to be cancelled.
    Cancelled,
    /// The lease is lost to another worker.
    Lost,
}

/// A statement under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Running {
    pub statement: Statement,
    /// Its progress.
    pub phase: Phase,
    /// The snapshot it took when it began.
    pub snapshot: Snapshot,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.phase, self.statement)
    }
}

impl Running {
    /// Starts a statement and takes its snapshot.
    #[must_use]
    pub fn begin(scenario: &Scenario, state: &State, statement: Statement) -> Self {
        let mut snapshot = Snapshot { fits: fits(scenario, state, statement, dead(state)), ..Snapshot::default() };
        match statement {
            Statement::Reap { execution } => {
                snapshot.dead = dead(state);
                if scenario.is(Broken::SuspectsAtReap)
                    && let Some(worker) = state.execution(execution).worker
                {
                    snapshot.suspects = state.suspects_of(worker);
                }
            }
            Statement::Bury { worker } if scenario.is(Broken::SuspectsBeforeTheLock) => {
                snapshot.suspects = state.suspects_of(worker);
            }
            Statement::WakeDue { execution } => snapshot.parked = state.execution(execution).parked,
            Statement::Cancel { execution } | Statement::CancelChild { execution }
                if scenario.is(Broken::SnapshotDelete) =>
            {
                snapshot.parked = state.execution(execution).parked;
            }
            Statement::Claim { execution, .. } | Statement::HandOver { execution }
                if scenario.work(execution) == Work::Limited =>
            {
                snapshot.free = if scenario.is(Broken::CountedSlots) { counted(scenario, state) } else { free(state) };
            }
            Statement::Claim { .. }
            | Statement::Record { .. }
            | Statement::Conclude { .. }
            | Statement::Request { .. }
            | Statement::Spawn { .. }
            | Statement::Reserve { .. }
            | Statement::Fold
            | Statement::Raise
            | Statement::Renew { .. }
            | Statement::Bury { .. }
            | Statement::HandOver { .. }
            | Statement::Cancel { .. }
            | Statement::CancelChild { .. }
            | Statement::Decide { .. } => {}
        }
        Self { statement, phase: Phase::Begun, snapshot }
    }

    /// Returns true if the statement has locked this execution's row.
    pub(crate) fn has(&self, scenario: &Scenario, state: &State, execution: u8) -> bool {
        if self.phase == Phase::Waking(execution) {
            return true;
        }
        let Some(own) = self.statement.execution() else { return false };
        if matches!((self.statement, self.phase), (Statement::CancelChild { .. }, Phase::Fenced)) {
            return scenario.parent(own) == Some(execution);
        }
        let is_locked = matches!(self.phase, Phase::Locked(_));
        if !is_locked || self.statement.takes_budget() || takes_no_lock(scenario, self.statement) {
            return false;
        }
        own == execution || (scenario.parent(own) == Some(execution) && self.takes_parent(scenario, state))
    }

    /// Returns true if the statement locks the parent's row with its own, because it may end the child.
    pub(crate) fn takes_parent(&self, scenario: &Scenario, state: &State) -> bool {
        let Some(own) = self.statement.execution() else { return false };
        scenario.parent(own).is_some()
            && match self.statement {
                Statement::Conclude { ending, .. } => match ending.verb {
                    Verb::Park(..) | Verb::Release => state.execution(own).cancel,
                    Verb::Finish | Verb::Cancel => true,
                },
                Statement::Reap { .. } | Statement::WakeDue { .. } | Statement::CancelChild { .. } => true,
                // A caller's cancel waits for the parent at its end, in the trigger.
                Statement::Cancel { .. }
                | Statement::Claim { .. }
                | Statement::Record { .. }
                | Statement::Request { .. }
                | Statement::Spawn { .. }
                | Statement::Reserve { .. }
                | Statement::Fold
                | Statement::Raise
                | Statement::Renew { .. }
                | Statement::Bury { .. }
                | Statement::HandOver { .. }
                | Statement::Decide { .. } => false,
            }
    }
}

/// Dead workers, as a bit set.
fn dead(state: &State) -> u8 {
    state.workers.iter().enumerate().filter(|(_, worker)| worker.is_dead).map(|(at, _)| 1 << at).sum()
}

/// Free slots, as a bit set.
pub(crate) fn free(state: &State) -> u8 {
    state.slots.iter().enumerate().filter(|(_, holder)| holder.is_none()).map(|(at, _)| 1 << at).sum()
}

/// Returns 1 if fewer executions run than there are slots (broken twin).
fn counted(scenario: &Scenario, state: &State) -> u8 {
    let limited = state.numbers().filter(|&at| scenario.work(at) == Work::Limited);
    let running = limited.filter(|&at| state.execution(at).worker.is_some()).count();
    u8::from(running < usize::from(scenario.slots))
}

/// The statement's `where`, applied to one version of its row. `dead` holds the workers that its snapshot shows as
/// dead.
pub(crate) fn fits(scenario: &Scenario, state: &State, statement: Statement, dead: u8) -> bool {
    let own = statement.execution().map(|at| state.execution(at));
    let is = |test: &dyn Fn(&Execution) -> bool| own.is_some_and(|row| row.exists && test(row));
    match statement {
        Statement::Claim { .. } => is(&|row| row.wait == Some(Wait::Worker) && row.end.is_none()),
        Statement::Record { lease, write } => {
            is(&|row| row.is_held_by(lease.by, lease.token) && row.write + 1 == write.number)
        }
        Statement::Conclude { lease, ending } => is(&|row| {
            let is_next = |write: Write| row.write + 1 == write.number || scenario.is(Broken::UnnumberedEnd);
            row.is_held_by(lease.by, lease.token) && ending.write.is_none_or(is_next)
        }),
        Statement::Request { lease } | Statement::Spawn { lease } | Statement::Reserve { lease } => {
            is(&|row| row.is_held_by(lease.by, lease.token))
        }
        Statement::Reap { .. } => is(&|row| row.worker.is_some_and(|worker| dead & (1 << worker) != 0)),
        Statement::WakeDue { .. } => is(&|row| row.worker.is_none() && row.end.is_none() && row.parked.is_some()),
        Statement::HandOver { .. } => is(&|row| row.wait == Some(Wait::Slot)) && free(state) != 0,
        Statement::Cancel { .. } | Statement::CancelChild { .. } => {
            is(&|row| row.end.is_none() && (row.worker.is_none() || !row.cancel))
        }
        Statement::Decide { .. } => is(&|row| row.end.is_none() && row.asked == Some(Asked::Waiting)),
        Statement::Renew { worker } => {
            let worker = state.worker(worker);
            worker.is_expired && !worker.is_dead && worker.is_excused
                || scenario.is(Broken::Revival) && !worker.is_alive()
        }
        Statement::Bury { worker } => {
            let worker = state.worker(worker);
            worker.is_expired && !worker.is_dead
        }
        Statement::Fold | Statement::Raise => true,
    }
}

/// The two statements of a broken twin that commits an end and its write apart.
pub(crate) fn halves(scenario: &Scenario, statement: Statement) -> Option<(Statement, Statement)> {
    let Statement::Conclude { lease, ending: Ending { verb, write: Some(write) } } = statement else { return None };
    let (record, end) =
        (Statement::Record { lease, write }, Statement::Conclude { lease, ending: Ending::alone(verb) });
    if scenario.is(Broken::WriteThenEnd) {
        return Some((record, end));
    }
    scenario.is(Broken::EndThenWrite).then_some((end, record))
}

pub(crate) fn is_unfenced(scenario: &Scenario, statement: Statement) -> bool {
    match statement {
        Statement::Record { .. } => scenario.is(Broken::TokenFence),
        Statement::Renew { .. } => scenario.is(Broken::UnfencedRenewal) || scenario.is(Broken::Revival),
        Statement::Claim { .. }
        | Statement::Conclude { .. }
        | Statement::Request { .. }
        | Statement::Spawn { .. }
        | Statement::Reserve { .. }
        | Statement::Fold
        | Statement::Raise
        | Statement::Bury { .. }
        | Statement::Reap { .. }
        | Statement::WakeDue { .. }
        | Statement::HandOver { .. }
        | Statement::Cancel { .. }
        | Statement::CancelChild { .. }
        | Statement::Decide { .. } => false,
    }
}

/// Returns true for a broken twin's statement that trusts its snapshot alone.
pub(crate) fn takes_no_lock(scenario: &Scenario, statement: Statement) -> bool {
    is_unfenced(scenario, statement)
        || (scenario.is(Broken::BlindSpawn) && matches!(statement, Statement::Spawn { .. }))
}
