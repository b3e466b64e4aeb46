//! Maps states that differ only in their history to one state. Tokens and wake counters are compared, never
//! counted, so unreferenced ones are forgotten and the rest are renumbered in the same order.

use crate::{
    rows::{Reservation, State},
    statement::{Ending, Phase, Reply, Running, Statement, Verb},
};

/// Numbers in use, as a bit set.
#[derive(Default)]
struct Used(u64);

impl Used {
    fn see(&mut self, number: u8) {
        self.0 |= 1 << number;
    }

    fn knows(&self, number: u8) -> bool {
        self.0 & (1 << number) != 0
    }

    /// Returns the position of `number` among those in use.
    fn rank(&self, number: u8) -> u8 {
        let below = self.0 & ((1 << number) - 1);
        u8::try_from(below.count_ones()).unwrap_or(u8::MAX)
    }
}

pub(crate) fn normalise(state: &mut State) {
    for at in state.numbers() {
        // Token 0 stands for the time before the first lease; no lease has it.
        let mut tokens = Used(1);
        each_token(state, at, &mut |token| tokens.see(*token));
        each_token(state, at, &mut |token| *token = tokens.rank(*token));
        let row = state.execution_mut(at);
        for step in &mut row.steps {
            *step = if tokens.knows(*step) { tokens.rank(*step) } else { 0 };
        }
        let ended = row.ended;
        row.ended = (1..32)
            .filter(|&token| ended & (1 << token) != 0 && tokens.knows(token))
            .map(|token| 1 << tokens.rank(token))
            .sum();

        let mut wakes = Used::default();
        each_wake(state, at, &mut |wake| wakes.see(*wake));
        each_wake(state, at, &mut |wake| *wake = wakes.rank(*wake));
    }
    state.running.sort_unstable();
}

fn each_token(state: &mut State, at: u8, see: &mut impl FnMut(&mut u8)) {
    let index = usize::from(at);
    let row = &mut state.executions[index];
    see(&mut row.token);
    if let Some(parked) = &mut row.parked {
        see(&mut parked.token);
    }
    if let Some(Reservation::Open(Some(token))) = &mut row.reservation {
        see(token);
    }
    for lease in state.processes.iter_mut().filter_map(|process| process.leases[index].as_mut()) {
        see(&mut lease.token);
    }
    for running in of(&mut state.running, at) {
        if let Some(parked) = &mut running.snapshot.parked {
            see(&mut parked.token);
        }
        if let Some(lease) = running.statement.lease_mut() {
            see(&mut lease.token);
        }
        if let Phase::Replied(Reply::Claimed { token, .. }) = &mut running.phase {
            see(token);
        }
    }
}

fn each_wake(state: &mut State, at: u8, see: &mut impl FnMut(&mut u8)) {
    let index = usize::from(at);
    see(&mut state.executions[index].wake_seq);
    for lease in state.processes.iter_mut().filter_map(|process| process.leases[index].as_mut()) {
        see(&mut lease.wake_seq);
        if let Some(Ending { verb: Verb::Park(_, wake_seq), .. }) = &mut lease.ending {
            see(wake_seq);
        }
    }
    for running in of(&mut state.running, at) {
        if let Statement::Conclude { ending, .. } = &mut running.statement
            && let Verb::Park(_, wake_seq) = &mut ending.verb
        {
            see(wake_seq);
        }
        if let Phase::Replied(
            Reply::Claimed { wake_seq, .. } | Reply::Recorded { wake_seq, .. } | Reply::NoBudget { wake_seq },
        ) = &mut running.phase
        {
            see(wake_seq);
        }
    }
}

fn of(running: &mut [Running], at: u8) -> impl Iterator<Item = &mut Running> {
    running.iter_mut().filter(move |one| one.statement.execution() == Some(at))
}
