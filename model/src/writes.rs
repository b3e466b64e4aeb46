//! The writes of each statement, including those of the functions and triggers inside it. All become visible at
//! once.

use std::cmp::Ordering;

use crate::{
    rows::{Asked, End, Execution, Parked, Reservation, State, Wait, Wrong},
    scenario::{Broken, COST, ESTIMATE, Scenario, Work},
    statement::{Ending, LeaseName, Reply, Running, Statement, Verb, Write},
};

#[expect(clippy::too_many_lines, reason = "one short arm per statement, side by side")]
/// Applies a statement that has its locks. Returns its reply if a sender waits for one.
pub(crate) fn write(scenario: &Scenario, state: &mut State, running: Running, slot: Option<u8>) -> Option<Reply> {
    let before: Vec<Execution> = state.executions.clone();
    if let Some(lease) = running.statement.lease() {
        let is_its_own = state.execution(lease.execution).is_held_by(lease.by, lease.token);
        if !is_its_own || state.worker(lease.by).is_dead {
            state.note(Wrong::StaleWrite);
        }
    }
    let reply = match running.statement {
        Statement::Claim { by, execution } => claim(scenario, state, by, execution, slot),
        Statement::Record { lease, write } => Some(record(scenario, state, lease, write)),
        Statement::Conclude { lease, ending } => {
            conclude(scenario, state, lease, ending);
            Some(Reply::Concluded)
        }
        Statement::Request { lease } => {
            let row = state.execution_mut(lease.execution);
            let asked = *row.asked.get_or_insert(Asked::Waiting);
            Some(Reply::Asked { is_decided: asked != Asked::Waiting })
        }
        Statement::Spawn { lease } => Some(spawn(scenario, state, lease)),
        Statement::Reserve { lease } => Some(reserve(scenario, state, lease)),
        Statement::Fold => {
            fold(scenario, state);
            None
        }
        Statement::Raise => {
            state.budget.cap += scenario.raise;
            fold(scenario, state);
            None
        }
        Statement::Renew { worker } => {
            let row = &mut state.workers[usize::from(worker)];
            row.is_expired = false;
            row.is_excused = false;
            if scenario.is(Broken::Revival) {
                row.is_dead = false;
            } else {
                row.is_at_fault = false;
            }
            None
        }
        Statement::Bury { worker } => {
            if !state.worker(worker).is_at_fault {
                state.note(Wrong::InnocentBuried);
            }
            let is_early = scenario.is(Broken::SuspectsBeforeTheLock);
            die(state, worker, if is_early { running.snapshot.suspects } else { state.suspects_of(worker) });
            None
        }
        Statement::Reap { execution } => {
            reap(scenario, state, execution, running);
            None
        }
        Statement::WakeDue { execution } | Statement::HandOver { execution } => {
            if let Some(slot) = slot.filter(|_| !scenario.is(Broken::CountedSlots)) {
                state.slots[usize::from(slot)] = Some(execution);
            }
            let row = state.execution_mut(execution);
            row.parked = None;
            row.wait = Some(Wait::Worker);
            row.wake_seq += 1;
            None
        }
        Statement::Cancel { execution } | Statement::CancelChild { execution } => {
            cancel(scenario, state, execution, running);
            None
        }
        Statement::Decide { execution } => {
            let row = state.execution_mut(execution);
            if row.asked == Some(Asked::Waiting) {
                row.asked = Some(Asked::Decided);
                wake(row, &[Wait::Approval, Wait::Children]);
            }
            None
        }
    };
    for (old, new) in before.iter().zip(&state.executions) {
        // After the end an approval request may still be closed, and the execution may leave the work list.
        let is_same = old.end == new.end && old.wait == new.wait && old.worker == new.worker && old.steps == new.steps;
        if old.end.is_some() && !is_same {
            state.wrong.get_or_insert(Wrong::ChangedAfterEnd);
        }
    }
    reply
}

/// Declares a worker dead and stores its number of suspects.
pub(crate) fn die(state: &mut State, worker: u8, suspects: u8) {
    let held_suspects = state.suspects_of(worker);
    let row = &mut state.workers[usize::from(worker)];
    row.is_dead = true;
    row.suspects = suspects;
    row.held_suspects = held_suspects;
}

/// Increments the wake counter, and makes the execution runnable if it waits for one of `reasons`.
fn wake(row: &mut Execution, reasons: &[Wait]) {
    row.wake_seq += 1;
    if row.wait.is_some_and(|wait| reasons.contains(&wait)) {
        row.wait = Some(Wait::Worker);
        row.parked = None;
    }
}

fn park(state: &mut State, execution: u8, wait: Wait, token: u8) {
    let row = state.execution_mut(execution);
    row.wait = Some(wait);
    if row.parked.replace(Parked { wait, token }).is_some() {
        state.note(Wrong::Conflict);
    }
}

fn claim(scenario: &Scenario, state: &mut State, by: u8, execution: u8, slot: Option<u8>) -> Option<Reply> {
    if scenario.work(execution) == Work::Limited {
        let Some(slot) = slot else {
            let token = state.execution(execution).token;
            park(state, execution, Wait::Slot, token);
            return None;
        };
        if !scenario.is(Broken::CountedSlots) {
            state.slots[usize::from(slot)] = Some(execution);
        }
    }
    let row = state.execution_mut(execution);
    row.wait = None;
    row.worker = Some(by);
    row.token += 1;
    row.write = 0;
    Some(Reply::Claimed { token: row.token, wake_seq: row.wake_seq })
}

fn record(scenario: &Scenario, state: &mut State, lease: LeaseName, write: Write) -> Reply {
    apply(scenario, state, lease, write);
    let row = state.execution_mut(lease.execution);
    row.write += 1;
    Reply::Recorded { wake_seq: row.wake_seq, is_cancelled: row.cancel }
}

/// Applies the contents of a write: its step and its settlement.
fn apply(scenario: &Scenario, state: &mut State, lease: LeaseName, write: Write) {
    let row = state.execution_mut(lease.execution);
    let order = row.steps.len().cmp(&usize::from(write.step));
    if order.is_eq() {
        row.steps.push(lease.token);
        row.is_suspect = false;
    }
    if scenario.work(lease.execution).pays() && matches!(row.reservation, Some(Reservation::Open(_))) {
        row.reservation = Some(Reservation::Settled(COST));
    }
    match order {
        Ordering::Less => state.note(Wrong::SkippedStep),
        Ordering::Equal => {}
        Ordering::Greater => state.note(Wrong::DoubledStep),
    }
}

fn conclude(scenario: &Scenario, state: &mut State, lease: LeaseName, ending: Ending) {
    let Ending { verb, write } = ending;
    if let Some(write) = write {
        apply(scenario, state, lease, write);
    }
    let row = state.execution_mut(lease.execution);
    row.ended |= 1 << lease.token;
    let forgets = scenario.is(Broken::ParkIgnoresCancel) && matches!(verb, Verb::Park(..) | Verb::Release);
    let is_cancelled = row.cancel && !forgets;
    match verb {
        Verb::Finish => end(scenario, state, lease.execution, End::Finished),
        Verb::Cancel => end(scenario, state, lease.execution, End::Cancelled),
        Verb::Park(..) | Verb::Release if is_cancelled => end(scenario, state, lease.execution, End::Cancelled),
        Verb::Release => leave(state, lease.execution, None, lease.token),
        Verb::Park(wait, wake_seq) => {
            // A backoff waits only for its time; no wake concerns it.
            let is_awake = wait != Wait::Backoff && wake_seq != row.wake_seq && !scenario.is(Broken::BlindPark);
            leave(state, lease.execution, Some(wait).filter(|_| !is_awake), lease.token);
        }
    }
}

/// Ends the lease of an execution and frees its slot.
fn leave(state: &mut State, execution: u8, wait: Option<Wait>, token: u8) {
    clear_slot(state, execution);
    let row = state.execution_mut(execution);
    row.worker = None;
    row.wait = Some(Wait::Worker);
    if let Some(wait) = wait {
        park(state, execution, wait, token);
    }
}

fn clear_slot(state: &mut State, execution: u8) {
    for slot in &mut state.slots {
        *slot = slot.filter(|holder| *holder != execution);
    }
}

/// Ends an execution, with its triggers. The caller deletes the row in `parked`, because the statements do so
/// differently.
fn end(scenario: &Scenario, state: &mut State, execution: u8, end: End) {
    clear_slot(state, execution);
    let row = state.execution_mut(execution);
    row.end = Some(end);
    row.worker = None;
    row.wait = None;
    if row.asked == Some(Asked::Waiting) {
        row.asked = Some(Asked::Closed);
    }
    // `longhaul_settle_rest`
    row.reservation = match row.reservation {
        Some(Reservation::Open(taken)) => Some(Reservation::Settled(if taken.is_some() { ESTIMATE } else { 0 })),
        Some(Reservation::Waiting) | None => None,
        Some(Reservation::Settled(charged)) => Some(Reservation::Settled(charged)),
    };
    tell_children(scenario, state, execution);
    // `longhaul_child_ended`
    if let Some(parent) = scenario.parent(execution) {
        let row = state.execution_mut(parent);
        if row.end.is_none() {
            let is_last = row.open_children == 1;
            row.open_children -= 1;
            wake(row, if is_last { &[Wait::Children, Wait::Approval] } else { &[] });
        }
    }
}

/// Puts a parent that has ended or is to be cancelled on the work list, if it ever had a child.
fn tell_children(scenario: &Scenario, state: &mut State, execution: u8) {
    if scenario.children_of(execution).any(|child| state.execution(child).exists) {
        state.execution_mut(execution).is_ending = true;
    }
}

fn reap(scenario: &Scenario, state: &mut State, execution: u8, running: Running) {
    let row = state.execution(execution);
    if row.cancel && !scenario.is(Broken::ReapIgnoresCancel) {
        return end(scenario, state, execution, End::Cancelled);
    }
    if let Some(worker) = row.worker.map(|worker| state.worker(worker)).filter(|_| row.is_suspect) {
        let suspects = if scenario.is(Broken::SuspectsAtReap) { running.snapshot.suspects } else { worker.suspects };
        if suspects == 1 {
            if worker.held_suspects != 1 {
                state.note(Wrong::InnocentConvicted);
            }
            return end(scenario, state, execution, End::Convicted);
        }
    }
    let token = state.execution(execution).token;
    leave(state, execution, None, token);
}

fn cancel(scenario: &Scenario, state: &mut State, execution: u8, running: Running) {
    let row = state.execution_mut(execution);
    row.cancel = true;
    row.wake_seq += 1;
    if row.worker.is_some() {
        return tell_children(scenario, state, execution);
    }
    // The broken twin deletes the row that its snapshot shows; `longhaul_unpark` reads it anew.
    if !scenario.is(Broken::SnapshotDelete) || row.parked == running.snapshot.parked {
        row.parked = None;
    }
    end(scenario, state, execution, End::Cancelled);
}

fn spawn(scenario: &Scenario, state: &mut State, lease: LeaseName) -> Reply {
    let Work::Spawns(child) = scenario.work(lease.execution) else { return Reply::Lost };
    let parent = state.execution(lease.execution);
    if parent.cancel && !scenario.is(Broken::BlindSpawn) {
        return Reply::Cancelled;
    }
    let is_orphan = parent.cancel || parent.end.is_some();
    if !state.execution(child).exists {
        state.execution_mut(child).exists = true;
        state.execution_mut(lease.execution).open_children += 1;
        if is_orphan {
            state.note(Wrong::OrphanBorn);
        }
    }
    Reply::Spawned
}

fn reserve(scenario: &Scenario, state: &mut State, lease: LeaseName) -> Reply {
    fold(scenario, state);
    let row = state.execution(lease.execution);
    let wake_seq = row.wake_seq;
    if row.cancel {
        return Reply::Cancelled;
    }
    let mut held = row.reservation;
    match held {
        Some(Reservation::Open(taken)) if taken.is_none_or(|token| token == lease.token) => {
            state.execution_mut(lease.execution).reservation = Some(Reservation::Open(Some(lease.token)));
            return Reply::Granted;
        }
        // Left by an earlier attempt that died; its call may have been made.
        Some(Reservation::Open(_)) => {
            state.budget.reserved -= ESTIMATE;
            state.budget.spent += ESTIMATE;
            held = None;
        }
        Some(Reservation::Waiting | Reservation::Settled(_)) | None => {}
    }
    let reply = if state.budget.fits() {
        state.budget.reserved += ESTIMATE;
        held = Some(Reservation::Open(Some(lease.token)));
        Reply::Granted
    } else {
        held = held.or(Some(Reservation::Waiting));
        Reply::NoBudget { wake_seq }
    };
    state.execution_mut(lease.execution).reservation = held;
    reply
}

/// The executions that a fold in this statement would wake if none were locked.
pub(crate) fn would_wake(scenario: &Scenario, state: &State, statement: Statement) -> Vec<u8> {
    let mut after = state.clone();
    after.running.clear();
    if statement == Statement::Raise {
        after.budget.cap += scenario.raise;
    }
    fold(scenario, &mut after);
    state.numbers().filter(|&at| after.execution(at).wake_seq != state.execution(at).wake_seq).collect()
}

/// `longhaul_fold_budget`: books settled reservations and grants the free amount to waiting ones. A locked execution is
/// left for the next fold.
fn fold(scenario: &Scenario, state: &mut State) {
    for at in state.numbers() {
        if let Some(Reservation::Settled(charged)) = state.execution(at).reservation {
            state.budget.reserved -= ESTIMATE;
            state.budget.spent += charged;
            state.execution_mut(at).reservation = None;
        }
    }
    if scenario.is(Broken::SilentSettle) {
        return;
    }
    for at in state.numbers() {
        let is_locked = state.running.iter().any(|running| running.has(scenario, state, at));
        let is_skipped = is_locked && !scenario.is(Broken::WaitingFold);
        if state.execution(at).reservation != Some(Reservation::Waiting) || !state.budget.fits() || is_skipped {
            continue;
        }
        let row = state.execution_mut(at);
        row.reservation = Some(Reservation::Open(None));
        wake(row, &[Wait::Budget]);
        state.budget.reserved += ESTIMATE;
    }
}
