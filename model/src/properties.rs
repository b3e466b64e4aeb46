//! Properties that hold in every state, and one that must occur in some state so that a check proves something.

use stateright::Property;

use crate::{
    locks::is_deadlocked,
    machine::Machine,
    rows::{Asked, End, Execution, Reservation, State, Wait, Wrong},
    scenario::{ESTIMATE, Work},
    statement::{Ending, Write},
};

/// core-rules 2.
pub const ONE_WRITER: &str = "only the current lease of a worker that lives writes";
/// core-rules 2, 9.
pub const STEPS_STAY: &str = "a recorded step is neither lost nor recorded twice";
/// core-rules 9: a write is applied only if it is the next of its lease.
pub const STEPS_IN_ORDER: &str = "a step is recorded after every step before it";
/// ADR 41. A worker may die in any state, so no state may have one without the other.
pub const WHOLE_ENDS: &str = "an end and the step it travels with are recorded together or not at all";
/// docs/reference/state-machine.md: terminal is terminal.
pub const END_IS_END: &str = "what has ended does not change";
/// core-rules 2: a worker id dies once.
pub const LIVING_HOLD: &str = "a worker that lives holds what it believes it holds";
/// core-rules 3.
pub const NO_LOST_WAKE: &str = "nobody waits for what has happened";
/// `parked` is the sweep's work list.
pub const WAITS_HAVE_ROWS: &str = "a wait has its row and a row its wait";
/// core-rules 17.
pub const CANCEL_WINS: &str = "what is to be cancelled and not held is over";
/// core-rules 17.
pub const NO_ORPHANS: &str = "no child outlives its parent unnoticed";
/// core-rules 12.
pub const SLOTS_HOLD: &str = "no more run than there are slots, and a slot belongs to what runs";
/// core-rules 13.
pub const BUDGET_HOLDS: &str = "reserved is what reservations hold, and spent covers what was made";
/// core-rules 4.
pub const OUTAGE_KILLS_NOBODY: &str = "an outage buries nobody who lived through it";
/// core-rules 5, 25.
pub const GUILTY_ALONE: &str = "who is convicted was the only suspect when its worker died";
/// core-rules 9.
pub const NO_DEADLOCK: &str = "no two statements wait for each other";
/// core-rules 1 and all of the above: after any fault, everything ends.
pub const NOTHING_STUCK: &str = "when nothing can happen any more, everything has ended or waits for what is missing";

/// The property that must occur in some state.
pub const SOME_FINISH: &str = "some run ends with everything finished";

pub(crate) fn all() -> Vec<Property<Machine>> {
    vec![
        Property::always(ONE_WRITER, |_, state: &State| state.wrong != Some(Wrong::StaleWrite)),
        Property::always(STEPS_STAY, |_, state: &State| {
            !matches!(state.wrong, Some(Wrong::DoubledStep | Wrong::LostStep))
        }),
        Property::always(STEPS_IN_ORDER, |_, state: &State| state.wrong != Some(Wrong::SkippedStep)),
        Property::always(WHOLE_ENDS, whole_ends),
        Property::always(END_IS_END, |_, state: &State| state.wrong != Some(Wrong::ChangedAfterEnd)),
        Property::always(LIVING_HOLD, |_, state: &State| living_hold(state)),
        Property::always(NO_LOST_WAKE, |_, state: &State| state.numbers().all(|at| !is_overslept(state, at))),
        Property::always(WAITS_HAVE_ROWS, |_, state: &State| {
            state.wrong != Some(Wrong::Conflict) && state.executions.iter().all(has_its_row)
        }),
        Property::always(CANCEL_WINS, |_, state: &State| {
            state.executions.iter().all(|row| !row.cancel || row.worker.is_some() || row.end.is_some())
        }),
        Property::always(NO_ORPHANS, |machine: &Machine, state: &State| {
            state.wrong != Some(Wrong::OrphanBorn) && state.numbers().all(|at| !is_orphan(machine, state, at))
        }),
        Property::always(SLOTS_HOLD, slots_hold),
        Property::always(BUDGET_HOLDS, |_, state: &State| budget_holds(state)),
        Property::always(OUTAGE_KILLS_NOBODY, |_, state: &State| state.wrong != Some(Wrong::InnocentBuried)),
        Property::always(GUILTY_ALONE, |_, state: &State| state.wrong != Some(Wrong::InnocentConvicted)),
        Property::always(NO_DEADLOCK, |machine: &Machine, state: &State| !is_deadlocked(&machine.scenario, state)),
        Property::always(NOTHING_STUCK, |machine: &Machine, state: &State| {
            let is_done = |at| !state.execution(at).is_open() || machine.may_wait(state, at);
            state.wrong.is_some() || state.numbers().all(is_done) || !machine.is_quiescent(state)
        }),
        Property::sometimes(SOME_FINISH, |_, state: &State| {
            state.executions.iter().all(|row| row.end == Some(End::Finished)) && state.running.is_empty()
        }),
    ]
}

/// A finished execution has all its steps. As long as a process remembers an end that carries a step, it is either
/// there with the step, or neither is.
fn whole_ends(machine: &Machine, state: &State) -> bool {
    let has_all = |at: u8| {
        let row = state.execution(at);
        row.end != Some(End::Finished) || row.steps.len() == machine.scenario.work(at).steps()
    };
    let leases = state.processes.iter().flat_map(|process| process.leases.iter().zip(&state.executions));
    let mut ends = leases.filter_map(|(lease, row)| {
        let lease = (*lease)?;
        let Ending { write, .. } = lease.ending?;
        Some((lease.token, write?, row))
    });
    let is_whole = |(token, write, row): (u8, Write, &Execution)| {
        row.has_ended(token) == (row.steps.get(usize::from(write.step)) == Some(&token))
    };
    state.numbers().all(has_all) && ends.all(is_whole)
}

fn living_hold(state: &State) -> bool {
    state.processes.iter().all(|process| {
        let Some(by) = process.identity.filter(|by| state.worker(*by).is_alive()) else { return true };
        let leases = process.leases.iter().zip(&state.executions);
        leases.into_iter().all(|(lease, row)| {
            // A lease that the process is ending may have ended in Postgres.
            lease.is_none_or(|lease| lease.ending.is_some() || row.is_held_by(by, lease.token))
        })
    })
}

/// The condition of the wait is met, and no wake will come. Slots, backoffs, and reservations that fit are left to the
/// sweep: a fold skips a locked execution.
fn is_overslept(state: &State, at: u8) -> bool {
    let row = state.execution(at);
    match row.wait {
        Some(Wait::Approval) => row.asked != Some(Asked::Waiting),
        Some(Wait::Children) => row.open_children == 0,
        Some(Wait::Budget) => row.reservation != Some(Reservation::Waiting),
        Some(Wait::Worker | Wait::Backoff | Wait::Slot) | None => false,
    }
}

fn has_its_row(row: &Execution) -> bool {
    let waits = row.wait.filter(|wait| *wait != Wait::Worker);
    let is_shape_right = row.end.is_none() || (row.wait.is_none() && row.worker.is_none());
    let is_held_or_waits = row.end.is_some() || row.wait.is_some() != row.worker.is_some();
    row.parked.map(|parked| parked.wait) == waits && is_shape_right && is_held_or_waits
}

/// Its parent has ended or is to be cancelled, and it is not on the work list.
fn is_orphan(machine: &Machine, state: &State, at: u8) -> bool {
    let Some(parent) = machine.scenario.parent(at) else { return false };
    let (row, parent) = (state.execution(at), state.execution(parent));
    row.is_open() && (parent.end.is_some() || parent.cancel) && !parent.is_ending
}

fn slots_hold(machine: &Machine, state: &State) -> bool {
    let is_limited = |at: &u8| machine.scenario.work(*at) == Work::Limited;
    let running = state.numbers().filter(is_limited).filter(|&at| state.execution(at).worker.is_some()).count();
    // Held by a worker, or given to it so that it can run.
    let is_in_use = |holder: u8| {
        let row = state.execution(holder);
        row.worker.is_some() || row.wait == Some(Wait::Worker)
    };
    running <= usize::from(machine.scenario.slots) && state.slots.iter().flatten().all(|&holder| is_in_use(holder))
}

fn budget_holds(state: &State) -> bool {
    let holds = |row: &&Execution| matches!(row.reservation, Some(Reservation::Open(_) | Reservation::Settled(_)));
    let reserved = state.executions.iter().filter(holds).count() * usize::from(ESTIMATE);
    let budget = state.budget;
    let all_over = state.executions.iter().all(|row| !row.is_open());
    let is_open = |row: &Execution| matches!(row.reservation, Some(Reservation::Open(_) | Reservation::Waiting));
    usize::from(budget.reserved) == reserved
        && budget.spent + budget.reserved <= budget.cap
        && budget.spent + budget.reserved >= state.made
        && (!all_over || !state.executions.iter().any(is_open))
        && (!all_over || reserved > 0 || budget.spent >= state.made)
}
