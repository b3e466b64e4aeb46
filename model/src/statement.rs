//! The store's statements, one lock at a time, as READ COMMITTED has them.
//!
//! A statement takes its snapshot when it begins. Then it locks the worker's row, then the rows it writes: it waits for them or
//! skips them, and looks at each again as it stands once it is locked. Everything else it reads, it reads in its snapshot, which is
//! older. What it writes is seen when it commits, and its locks end then.

use std::fmt;

use crate::{
    rows::{Asked, Execution, Parked, Reservation, State, Wait},
    scenario::{Broken, Scenario, Work},
};

/// A lease, as a write names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseName {
    /// The worker that writes.
    pub by: u8,
    /// The execution.
    pub execution: u8,
    /// The token.
    pub token: u8,
}

/// How a lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// FINISHED.
    Finish,
    /// FAILED `cancelled`.
    Cancel,
    /// Waiting, with the wake counter that was read before the condition was looked at.
    Park(Wait, u8),
    /// Runnable again.
    Release,
}

/// One statement of `shared::store`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Statement {
    /// `sql/claim.sql`, of one execution.
    Claim {
        /// Who claims.
        by: u8,
        /// What the scan finds.
        execution: u8,
    },
    /// `sql/record.sql`: the `write`th write of a lease, with one step, and with a settlement for what pays.
    Record {
        /// The lease.
        lease: LeaseName,
        /// The number of the write, from 1.
        write: u8,
        /// The number of the step, from 0.
        step: u8,
    },
    /// `sql/conclude.sql`.
    Conclude {
        /// The lease.
        lease: LeaseName,
        /// How it ends.
        verb: Verb,
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
    /// `bury_expired_workers`.
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
    /// The sweep finds that a slot is free and that this execution waits for one (core-rules 12).
    WakeSlot {
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
    /// The lease it writes under.
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
            | Self::Bury { .. }
            | Self::Reap { .. }
            | Self::WakeDue { .. }
            | Self::WakeSlot { .. }
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
            | Self::Bury { .. }
            | Self::Reap { .. }
            | Self::WakeDue { .. }
            | Self::WakeSlot { .. }
            | Self::Cancel { .. }
            | Self::CancelChild { .. }
            | Self::Decide { .. } => None,
        }
    }

    /// The identity it is sent under, whose row fences it.
    #[must_use]
    pub fn by(self) -> Option<u8> {
        match self {
            Self::Claim { by, .. } => Some(by),
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
            | Self::WakeSlot { .. }
            | Self::Cancel { .. }
            | Self::CancelChild { .. }
            | Self::Decide { .. } => self.lease().map(|lease| lease.by),
        }
    }

    /// The execution it writes.
    #[must_use]
    pub fn execution(self) -> Option<u8> {
        match self {
            Self::Claim { execution, .. }
            | Self::Reap { execution }
            | Self::WakeDue { execution }
            | Self::WakeSlot { execution }
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
            | Self::Bury { .. } => self.lease().map(|lease| lease.execution),
        }
    }

    /// Whether it waits for a row that somebody has locked; the others skip it.
    fn waits(self, scenario: &Scenario) -> bool {
        match self {
            Self::Spawn { .. } | Self::Cancel { .. } | Self::Decide { .. } | Self::Raise => true,
            Self::CancelChild { .. } => scenario.is(Broken::WaitingSweep),
            Self::Claim { .. }
            | Self::Record { .. }
            | Self::Conclude { .. }
            | Self::Request { .. }
            | Self::Reserve { .. }
            | Self::Fold
            | Self::Bury { .. }
            | Self::Reap { .. }
            | Self::WakeDue { .. }
            | Self::WakeSlot { .. } => false,
        }
    }

    /// Whether it takes the budget's row; then it takes those of executions as it goes.
    fn takes_budget(self) -> bool {
        matches!(self, Self::Reserve { .. } | Self::Fold | Self::Raise)
    }
}

/// What a statement keeps of its snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Snapshot {
    /// The row it looks for is there and fits.
    pub fits: bool,
    /// Its row in `parked`.
    pub parked: Option<Parked>,
    /// Dead workers, as bits.
    pub dead: u8,
    /// Free slots, as bits.
    pub free: u8,
}

/// How far a statement has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has its snapshot.
    Begun,
    /// It has its worker's row; of a twin's cancel that comes from above, the parent's.
    Fenced,
    /// It has the rows it writes; of a claim under a limit, with this slot.
    Locked(Option<u8>),
    /// It wrote nothing; its sender asks why, in another statement.
    Missed,
    /// It committed, and its answer is under way.
    Replied(Reply),
}

/// An answer to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// A lease.
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
        /// Whether to stop.
        is_cancelled: bool,
    },
    /// The lease has ended.
    Concluded,
    /// The request stands; whether somebody decided it.
    Asked {
        /// Whether.
        is_decided: bool,
    },
    /// The child is there.
    Spawned,
    /// The call may be made.
    Granted,
    /// Not now.
    NoBudget {
        /// The wake counter, as of when it did not fit.
        wake_seq: u8,
    },
    /// The execution is to be cancelled.
    Cancelled,
    /// The lease is another's.
    Lost,
}

/// A statement under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Running {
    /// Which.
    pub statement: Statement,
    /// How far it has come.
    pub phase: Phase,
    /// What it saw when it began.
    pub snapshot: Snapshot,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.phase, self.statement)
    }
}

impl Running {
    /// A statement that begins now.
    #[must_use]
    pub fn begin(scenario: &Scenario, state: &State, statement: Statement) -> Self {
        let mut snapshot = Snapshot { fits: fits(state, statement, dead(state)), ..Snapshot::default() };
        match statement {
            Statement::Reap { .. } => snapshot.dead = dead(state),
            Statement::WakeDue { execution } => snapshot.parked = state.execution(execution).parked,
            Statement::Cancel { execution } | Statement::CancelChild { execution }
                if scenario.is(Broken::SnapshotDelete) =>
            {
                snapshot.parked = state.execution(execution).parked;
            }
            Statement::Claim { execution, .. } if scenario.work(execution) == Work::Limited => {
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
            | Statement::Bury { .. }
            | Statement::WakeSlot { .. }
            | Statement::Cancel { .. }
            | Statement::CancelChild { .. }
            | Statement::Decide { .. } => {}
        }
        Self { statement, phase: Phase::Begun, snapshot }
    }

    /// Whether it has this execution's row.
    fn has(&self, scenario: &Scenario, state: &State, execution: u8) -> bool {
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

    /// Whether it locks the parent's row together with its own, because it may end the child.
    fn takes_parent(&self, scenario: &Scenario, state: &State) -> bool {
        let Some(own) = self.statement.execution() else { return false };
        scenario.parent(own).is_some()
            && match self.statement {
                Statement::Conclude { verb: Verb::Park(..) | Verb::Release, .. } => state.execution(own).cancel,
                Statement::Conclude { verb: Verb::Finish | Verb::Cancel, .. }
                | Statement::Reap { .. }
                | Statement::WakeDue { .. }
                | Statement::CancelChild { .. } => true,
                // A caller's cancel waits for the parent at its end, in the trigger.
                Statement::Cancel { .. }
                | Statement::Claim { .. }
                | Statement::Record { .. }
                | Statement::Request { .. }
                | Statement::Spawn { .. }
                | Statement::Reserve { .. }
                | Statement::Fold
                | Statement::Raise
                | Statement::Bury { .. }
                | Statement::WakeSlot { .. }
                | Statement::Decide { .. } => false,
            }
    }
}

/// Dead workers, as bits.
fn dead(state: &State) -> u8 {
    state.workers.iter().enumerate().filter(|(_, worker)| worker.is_dead).map(|(at, _)| 1 << at).sum()
}

/// Free slots, as bits.
pub(crate) fn free(state: &State) -> u8 {
    state.slots.iter().enumerate().filter(|(_, holder)| holder.is_none()).map(|(at, _)| 1 << at).sum()
}

/// The same by counting what runs.
fn counted(scenario: &Scenario, state: &State) -> u8 {
    let limited = state.numbers().filter(|&at| scenario.work(at) == Work::Limited);
    let running = limited.filter(|&at| state.execution(at).worker.is_some()).count();
    u8::from(running < usize::from(scenario.slots))
}

/// The statement's own `where`, over one version of its row. `dead` are the workers that its snapshot shows dead.
fn fits(state: &State, statement: Statement, dead: u8) -> bool {
    let own = statement.execution().map(|at| state.execution(at));
    let is = |test: &dyn Fn(&Execution) -> bool| own.is_some_and(|row| row.exists && test(row));
    match statement {
        Statement::Claim { .. } => is(&|row| row.wait == Some(Wait::Worker) && row.end.is_none()),
        Statement::Record { lease, write, .. } => {
            is(&|row| row.is_held_by(lease.by, lease.token) && row.write + 1 == write)
        }
        Statement::Conclude { lease, .. }
        | Statement::Request { lease }
        | Statement::Spawn { lease }
        | Statement::Reserve { lease } => is(&|row| row.is_held_by(lease.by, lease.token)),
        Statement::Reap { .. } => is(&|row| row.worker.is_some_and(|worker| dead & (1 << worker) != 0)),
        Statement::WakeDue { .. } => is(&|row| row.worker.is_none() && row.end.is_none() && row.parked.is_some()),
        Statement::WakeSlot { .. } => is(&|row| row.wait == Some(Wait::Slot)) && free(state) != 0,
        Statement::Cancel { .. } | Statement::CancelChild { .. } => {
            is(&|row| row.end.is_none() && (row.worker.is_none() || !row.cancel))
        }
        Statement::Decide { .. } => is(&|row| row.end.is_none() && row.asked == Some(Asked::Waiting)),
        Statement::Bury { worker } => {
            let worker = state.worker(worker);
            worker.is_expired && !worker.is_dead
        }
        Statement::Fold | Statement::Raise => true,
    }
}

/// One execution's row is locked by a statement other than the one at `but`.
fn is_locked(scenario: &Scenario, state: &State, execution: u8, but: usize) -> bool {
    let others = state.running.iter().enumerate().filter(|(at, _)| *at != but);
    others.into_iter().any(|(_, running)| running.has(scenario, state, execution))
}

/// What the next lock or the commit of the statement at `at` comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits for a row.
    Blocked,
    /// It is so far.
    To(Phase),
    /// It commits now, with the slot it found.
    Commit(Option<u8>),
    /// It is over, and nobody waits for its answer.
    Over,
}

/// The next step of the statement at `at`, which has not been answered.
pub(crate) fn step(scenario: &Scenario, state: &State, at: usize) -> Step {
    let running = state.running[at];
    match running.phase {
        Phase::Begun => match running.statement.by() {
            Some(by) if !is_unfenced(scenario, running.statement) => match fence(state, running.statement, by) {
                Step::To(Phase::Fenced) if scenario.is_coarse => lock(scenario, state, at, running),
                step => step,
            },
            Some(_) | None => lock(scenario, state, at, running),
        },
        Phase::Fenced => lock(scenario, state, at, running),
        Phase::Locked(slot) => commit(scenario, state, at, running, slot),
        Phase::Missed => reread(state, running.statement),
        Phase::Replied(_) => Step::Blocked,
    }
}

/// Whether two statements wait for each other. Postgres would end one of them, after a second and with an error.
pub(crate) fn is_deadlocked(scenario: &Scenario, state: &State) -> bool {
    let is_blocked = |state: &State, at: usize| {
        !matches!(state.running[at].phase, Phase::Replied(_)) && step(scenario, state, at) == Step::Blocked
    };
    let blocked: Vec<usize> = (0..state.running.len()).filter(|&at| is_blocked(state, at)).collect();
    let waits_for = |waiter: usize, holder: usize| {
        let mut without = state.clone();
        without.running.remove(holder);
        !is_blocked(&without, if holder < waiter { waiter - 1 } else { waiter })
    };
    let mut pairs = blocked.iter().flat_map(|&one| blocked.iter().map(move |&other| (one, other)));
    pairs.any(|(one, other)| one < other && waits_for(one, other) && waits_for(other, one))
}

fn is_unfenced(scenario: &Scenario, statement: Statement) -> bool {
    scenario.is(Broken::TokenFence) && matches!(statement, Statement::Record { .. })
}

/// A twin's statement that judges by its snapshot alone.
fn takes_no_lock(scenario: &Scenario, statement: Statement) -> bool {
    is_unfenced(scenario, statement)
        || (scenario.is(Broken::BlindSpawn) && matches!(statement, Statement::Spawn { .. }))
}

/// `me`: `for key share` on the worker's own row, which waits for whoever buries it.
fn fence(state: &State, statement: Statement, by: u8) -> Step {
    let buries = |running: &Running| {
        running.statement == Statement::Bury { worker: by } && matches!(running.phase, Phase::Locked(_))
    };
    if state.running.iter().any(buries) {
        return Step::Blocked;
    }
    if state.worker(by).is_alive() { Step::To(Phase::Fenced) } else { missed(statement) }
}

fn missed(statement: Statement) -> Step {
    if statement.lease().is_some() { Step::To(Phase::Missed) } else { Step::Over }
}

/// The rows it writes.
fn lock(scenario: &Scenario, state: &State, at: usize, running: Running) -> Step {
    let Running { statement, snapshot, .. } = running;
    if !snapshot.fits {
        return missed(statement);
    }
    if statement.takes_budget() {
        let has = |other: &Running| other.statement.takes_budget() && matches!(other.phase, Phase::Locked(_));
        return match state.running.iter().any(has) {
            true if statement.waits(scenario) => Step::Blocked,
            true => missed(statement),
            false => Step::To(Phase::Locked(None)),
        };
    }
    if let Statement::Bury { worker } = statement {
        // `for update skip locked`: passes over a worker whose writes are under way.
        let is_writing = |other: &Running| {
            other.statement.by() == Some(worker) && matches!(other.phase, Phase::Fenced | Phase::Locked(_))
        };
        let is_free = !state.running.iter().any(is_writing) && fits(state, statement, 0);
        return if is_free { Step::To(Phase::Locked(None)) } else { Step::Over };
    }
    let Some(own) = statement.execution() else { return Step::Over };
    if takes_no_lock(scenario, statement) {
        return Step::To(Phase::Locked(None));
    }
    if matches!(statement, Statement::CancelChild { .. }) && statement.waits(scenario) && running.phase == Phase::Begun
    {
        // Its `where` takes the parent's row, or passes over the child; then it waits for the child's with the parent's in hand.
        let is_taken = scenario.parent(own).is_some_and(|parent| is_locked(scenario, state, parent, at));
        return if is_taken { Step::Over } else { Step::To(Phase::Fenced) };
    }
    if is_locked(scenario, state, own, at) {
        return if statement.waits(scenario) { Step::Blocked } else { missed(statement) };
    }
    if let Some(parent) = scenario.parent(own).filter(|_| running.takes_parent(scenario, state))
        && is_locked(scenario, state, parent, at)
    {
        return missed(statement);
    }
    // The row may have changed since the snapshot: what is locked is its newest version, and that is looked at again.
    let is_same_row = !matches!(statement, Statement::WakeDue { .. }) || state.execution(own).parked == snapshot.parked;
    if !is_same_row || !fits(state, statement, snapshot.dead) {
        return missed(statement);
    }
    Step::To(Phase::Locked(slot(scenario, state, at, running)))
}

/// The slot a claim takes, `for update skip locked`: free in its snapshot, locked by nobody, and free still.
fn slot(scenario: &Scenario, state: &State, at: usize, running: Running) -> Option<u8> {
    let Statement::Claim { execution, .. } = running.statement else { return None };
    if scenario.work(execution) != Work::Limited {
        return None;
    }
    if scenario.is(Broken::CountedSlots) {
        return (running.snapshot.free != 0).then_some(0);
    }
    let is_locked = |slot: u8| {
        let others = state.running.iter().enumerate().filter(|(other, _)| *other != at);
        others.into_iter().any(|(_, other)| other.phase == Phase::Locked(Some(slot)))
    };
    let slots = 0..scenario.slots;
    slots.into_iter().find(|&slot| {
        running.snapshot.free & (1 << slot) != 0 && !is_locked(slot) && state.slots[usize::from(slot)].is_none()
    })
}

/// Whether it can commit now: what runs inside it, in functions and triggers, may wait for further rows.
fn commit(scenario: &Scenario, state: &State, at: usize, running: Running, slot: Option<u8>) -> Step {
    let needs_parent = match running.statement {
        Statement::Cancel { execution } if state.execution(execution).worker.is_none() => scenario.parent(execution),
        Statement::Cancel { .. }
        | Statement::CancelChild { .. }
        | Statement::Claim { .. }
        | Statement::Record { .. }
        | Statement::Conclude { .. }
        | Statement::Request { .. }
        | Statement::Spawn { .. }
        | Statement::Reserve { .. }
        | Statement::Fold
        | Statement::Raise
        | Statement::Bury { .. }
        | Statement::Reap { .. }
        | Statement::WakeDue { .. }
        | Statement::WakeSlot { .. }
        | Statement::Decide { .. } => None,
    };
    if needs_parent.is_some_and(|parent| is_locked(scenario, state, parent, at)) {
        return Step::Blocked;
    }
    if running.statement.takes_budget() {
        // `longhaul_wake` waits for whom it wakes.
        let wakes = |at: &u8| state.execution(*at).reservation == Some(Reservation::Waiting);
        if state.numbers().filter(wakes).any(|woken| is_locked(scenario, state, woken, at)) {
            return Step::Blocked;
        }
    }
    if let Statement::Reserve { lease } = running.statement {
        // Its own execution's row, skipped when somebody has it.
        let is_held = state.execution(lease.execution).is_held_by(lease.by, lease.token);
        if !is_held || is_locked(scenario, state, lease.execution, at) {
            return Step::To(Phase::Missed);
        }
    }
    Step::Commit(slot)
}

/// Why a write was not applied: it was before, its row is locked, or the lease is another's.
fn reread(state: &State, statement: Statement) -> Step {
    let Some(lease) = statement.lease() else { return Step::Over };
    let row = state.execution(lease.execution);
    let is_held = state.worker(lease.by).is_alive() && row.is_held_by(lease.by, lease.token);
    match statement {
        Statement::Record { write, .. } if is_held && row.write >= write => {
            Step::To(Phase::Replied(Reply::Recorded { wake_seq: row.wake_seq, is_cancelled: row.cancel }))
        }
        // Locked: the sender begins again.
        _ if is_held => Step::Over,
        Statement::Conclude { .. } if row.ended & (1 << lease.token) != 0 => Step::To(Phase::Replied(Reply::Concluded)),
        _ => Step::To(Phase::Replied(Reply::Lost)),
    }
}
