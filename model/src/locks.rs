//! The way of a statement from its snapshot to its commit: the locks it waits for, the rows it skips, and the rows
//! it checks again.

use crate::{
    rows::{State, Wait},
    scenario::{Broken, Scenario, Work},
    statement::{Phase, Reply, Running, Statement, fits, is_unfenced, takes_no_lock},
    writes::would_wake,
};

/// Returns true if a statement other than the one at `but` has locked this execution's row.
fn is_locked(scenario: &Scenario, state: &State, execution: u8, but: usize) -> bool {
    let others = state.running.iter().enumerate().filter(|(at, _)| *at != but);
    others.into_iter().any(|(_, running)| running.has(scenario, state, execution))
}

/// The result of a statement's next lock or commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits for a row.
    Blocked,
    /// It moves to this phase.
    To(Phase),
    /// It commits now, with the slot it found.
    Commit(Option<u8>),
    /// It ends without a reply.
    Over,
}

/// Returns the next step of the statement at `at`, which has no reply yet.
pub(crate) fn step(scenario: &Scenario, state: &State, at: usize) -> Step {
    let running = state.running[at];
    match running.phase {
        Phase::Begun => match running.statement.by() {
            Some(by) if !is_unfenced(scenario, running.statement) => match fence(state, running.statement, by) {
                Step::To(Phase::Fenced) if scenario.is_coarse => lock(scenario, state, at, running),
                step @ (Step::Blocked | Step::To(_) | Step::Commit(_) | Step::Over) => step,
            },
            Some(_) | None => lock(scenario, state, at, running),
        },
        Phase::Fenced => lock(scenario, state, at, running),
        Phase::Locked(_) | Phase::Waking(_) if scenario.is(Broken::WaitingFold) && running.statement.takes_budget() => {
            wake_in_turn(scenario, state, at, running)
        }
        Phase::Locked(slot) => commit(scenario, state, at, running, slot),
        Phase::Missed => reread(state, running.statement),
        Phase::Waking(_) | Phase::Replied(_) => Step::Blocked,
    }
}

/// Returns true if two statements wait for each other. Postgres would end one of them after a second, with an
/// error.
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

/// `me`: locks the worker's own row `for key share` and waits for a burial of the worker. An expired lease does not
/// matter here: until the worker is declared dead, no other worker owns its executions.
fn fence(state: &State, statement: Statement, by: u8) -> Step {
    let buries = |running: &Running| {
        running.statement == Statement::Bury { worker: by } && matches!(running.phase, Phase::Locked(_))
    };
    if state.running.iter().any(buries) {
        return Step::Blocked;
    }
    if state.worker(by).is_dead { missed(statement) } else { Step::To(Phase::Fenced) }
}

/// Returns true if a statement of this worker has passed the fence.
pub(crate) fn is_writing(scenario: &Scenario, state: &State, worker: u8) -> bool {
    let writes = |running: &Running| {
        running.statement.by() == Some(worker)
            && matches!(running.phase, Phase::Fenced | Phase::Locked(_) | Phase::Waking(_))
            && !is_unfenced(scenario, running.statement)
    };
    state.running.iter().any(writes)
}

fn missed(statement: Statement) -> Step {
    if statement.lease().is_some() { Step::To(Phase::Missed) } else { Step::Over }
}

/// Locks the rows that the statement writes.
fn lock(scenario: &Scenario, state: &State, at: usize, running: Running) -> Step {
    let Running { statement, snapshot, .. } = running;
    if !snapshot.fits {
        return missed(statement);
    }
    if statement.takes_budget() {
        let has = |other: &Running| {
            other.statement.takes_budget() && matches!(other.phase, Phase::Locked(_) | Phase::Waking(_))
        };
        return match state.running.iter().any(has) {
            true if statement.waits(scenario) => Step::Blocked,
            true => missed(statement),
            false => Step::To(Phase::Locked(None)),
        };
    }
    if let Statement::Bury { worker } = statement {
        // `for update skip locked`: skips a worker whose writes are under way. The burial may have been sent before
        // the outage. Under the lock it reads the heartbeat again: that is another row, so the lock itself brings
        // no newer version of it.
        let is_too_early = state.is_young && !scenario.is(Broken::NoGap);
        let is_over =
            fits(scenario, state, statement, 0) || (scenario.is(Broken::BlindBurial) && !state.worker(worker).is_dead);
        let is_free = !is_too_early && !is_writing(scenario, state, worker) && is_over;
        return if is_free { Step::To(Phase::Locked(None)) } else { Step::Over };
    }
    if let Statement::Renew { .. } = statement {
        return if fits(scenario, state, statement, 0) { Step::To(Phase::Locked(None)) } else { Step::Over };
    }
    let Some(own) = statement.execution() else { return Step::Over };
    if takes_no_lock(scenario, statement) {
        return Step::To(Phase::Locked(None));
    }
    if matches!(statement, Statement::CancelChild { .. }) && statement.waits(scenario) && running.phase == Phase::Begun
    {
        // Its `where` locks the parent's row, or skips the child; then it waits for the child's row while it holds
        // the parent's.
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
    // The row may have changed since the snapshot; once it is locked, its newest version is checked again.
    let is_same_row = !matches!(statement, Statement::WakeDue { .. }) || state.execution(own).parked == snapshot.parked;
    if !is_same_row || !fits(scenario, state, statement, snapshot.dead) {
        return missed(statement);
    }
    let slot = slot(scenario, state, at, running);
    if matches!(statement, Statement::HandOver { .. }) && slot.is_none() {
        return missed(statement);
    }
    Step::To(Phase::Locked(slot))
}

/// Returns the slot that a claim takes or a hand-over gives (`for update skip locked`): free in the snapshot, not
/// locked, and still free. A claim takes the slot its execution was given; otherwise it takes none while executions
/// wait for one.
fn slot(scenario: &Scenario, state: &State, at: usize, running: Running) -> Option<u8> {
    let (Statement::Claim { execution, .. } | Statement::HandOver { execution }) = running.statement else {
        return None;
    };
    if scenario.work(execution) != Work::Limited {
        return None;
    }
    if scenario.is(Broken::CountedSlots) {
        return (running.snapshot.free != 0).then_some(0);
    }
    let slots = 0..scenario.slots;
    if let Statement::Claim { .. } = running.statement {
        let given = slots.clone().find(|&slot| state.slots[usize::from(slot)] == Some(execution));
        let is_line = state.executions.iter().any(|row| row.wait == Some(Wait::Slot));
        if given.is_some() || is_line {
            return given;
        }
    } else if scenario.is(Broken::CarelessHandOver) {
        return slots.clone().find(|slot| running.snapshot.free & (1 << slot) != 0);
    }
    let is_locked = |slot: u8| {
        let others = state.running.iter().enumerate().filter(|(other, _)| *other != at);
        others.into_iter().any(|(_, other)| other.phase == Phase::Locked(Some(slot)))
    };
    slots.into_iter().find(|&slot| {
        running.snapshot.free & (1 << slot) != 0 && !is_locked(slot) && state.slots[usize::from(slot)].is_none()
    })
}

/// A broken twin's fold: it wakes one execution after the other, waits for each, and holds those that it has woken.
fn wake_in_turn(scenario: &Scenario, state: &State, at: usize, running: Running) -> Step {
    let woken = would_wake(scenario, state, running.statement);
    let holds_first = matches!(running.phase, Phase::Waking(_));
    match woken.first() {
        Some(&first) if !holds_first && !is_locked(scenario, state, first, at) => Step::To(Phase::Waking(first)),
        _ if woken.iter().any(|&one| is_locked(scenario, state, one, at)) => Step::Blocked,
        _ => commit(scenario, state, at, running, None),
    }
}

/// Commits, unless the functions and triggers inside the statement must wait for further rows.
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
        | Statement::Renew { .. }
        | Statement::Bury { .. }
        | Statement::Reap { .. }
        | Statement::WakeDue { .. }
        | Statement::HandOver { .. }
        | Statement::Decide { .. } => None,
    };
    if needs_parent.is_some_and(|parent| is_locked(scenario, state, parent, at)) {
        return Step::Blocked;
    }
    if running.statement == Statement::Raise
        && scenario.payer().is_some_and(|root| is_locked(scenario, state, root, at))
    {
        // The raise is an event of the root. Executions to wake are skipped if they are locked.
        return Step::Blocked;
    }
    if let Statement::Reserve { lease } = running.statement {
        // Locks its own execution's row, or skips it if it is locked.
        let is_held = state.execution(lease.execution).is_held_by(lease.by, lease.token);
        if !is_held || is_locked(scenario, state, lease.execution, at) {
            return Step::To(Phase::Missed);
        }
    }
    Step::Commit(slot)
}

/// Returns the reason why a write was not applied: it was applied before, its row is locked, or the lease is lost.
fn reread(state: &State, statement: Statement) -> Step {
    let Some(lease) = statement.lease() else { return Step::Over };
    let row = state.execution(lease.execution);
    let is_held = !state.worker(lease.by).is_dead && row.is_held_by(lease.by, lease.token);
    if let Statement::Record { write, .. } = statement
        && is_held
        && row.write >= write.number
    {
        return Step::To(Phase::Replied(Reply::Recorded { wake_seq: row.wake_seq, is_cancelled: row.cancel }));
    }
    if is_held {
        // The row is locked: the sender starts again.
        return Step::Over;
    }
    let has_ended = matches!(statement, Statement::Conclude { .. }) && row.has_ended(lease.token);
    Step::To(Phase::Replied(if has_ended { Reply::Concluded } else { Reply::Lost }))
}
