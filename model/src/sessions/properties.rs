//! Properties of sessions that hold in every state.

use stateright::Property;

use super::{Machine, Message, Policy, State, Status};
use crate::properties::SOME_FINISH;

/// One execution of a session runs at a time.
pub const ONE_TURN: &str = "an execution that runs or may run has the session's turn";
/// The end of an execution passes its turn on, or leaves a row for the reaction that does.
pub const TURN_LIVES: &str = "the turn belongs to an execution that runs or may run, or is about to pass on";
/// Messages are answered in the order of their arrival.
pub const IN_ORDER: &str = "no message overtakes one that is queued";
/// A message and the effect of its policy are one.
pub const POLICY_HOLDS: &str = "a stored message has cancelled and withdrawn the one that its policy stops";
/// Locks are taken in one order.
pub const NO_DEADLOCK: &str = "no transactions of a session wait for each other";
/// After any fault, every message is answered or cancelled.
pub const NOTHING_STUCK: &str = "when no action is possible, every message has ended";

pub(super) fn all() -> Vec<Property<Machine>> {
    vec![
        Property::always(ONE_TURN, |_, state: &State| {
            state.indexes().all(|at| !may_run(state.message(at)) || state.running == Some(at))
        }),
        Property::always(TURN_LIVES, |_, state: &State| match state.running {
            Some(running) => may_run(state.message(running)) || state.left_behind == Some(running),
            None => state.next_in_line(0).is_none(),
        }),
        Property::always(IN_ORDER, |_, state: &State| {
            let first = state.next_in_line(0).map(|at| state.message(at).number);
            let is_first = |message: &Message| first.is_none_or(|first| message.number < first);
            state.messages.iter().filter(|message| may_run(**message)).all(is_first)
        }),
        Property::always(POLICY_HOLDS, |machine: &Machine, state: &State| {
            state.indexes().all(|at| policy_holds(machine, state, at))
        }),
        Property::always(NO_DEADLOCK, |machine: &Machine, state: &State| !machine.is_deadlocked(state)),
        Property::always(NOTHING_STUCK, |machine: &Machine, state: &State| {
            all_ended(state) || !machine.possible(state).is_empty()
        }),
        Property::sometimes(SOME_FINISH, |_, state: &State| all_ended(state) && state.under_way.is_empty()),
    ]
}

fn may_run(message: Message) -> bool {
    matches!(message.status, Status::Runnable | Status::Held)
}

fn all_ended(state: &State) -> bool {
    state.messages.iter().all(|message| message.status == Status::Ended)
}

fn policy_holds(machine: &Machine, state: &State, at: u8) -> bool {
    let policy = machine.scenario.policy(at);
    let Message { status, stops, .. } = state.message(at);
    if policy == Policy::Reject && status == Status::Queued {
        return false;
    }
    stops.map(|stopped| state.message(stopped)).is_none_or(|stopped| {
        stopped.cancel && (policy != Policy::Rollback || stopped.is_withdrawn || stopped.is_answered)
    })
}
