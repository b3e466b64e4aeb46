//! The senders of each transaction, and the faults.

use stateright::{Model, Property};

use super::{
    Scenario, State, Status, properties,
    transaction::{Commit, Phase, Row, Step, Task, Transaction},
};

/// One atomic transition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    Begin(Task),
    /// A transaction gets its next lock, finds that it must not have it, or commits.
    Go(Transaction),
    /// The sender of a transaction dies, and Postgres rolls the transaction back.
    Die(Transaction),
    /// A worker claims the execution of a message.
    Claim(u8),
}

/// The model of one scenario.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its bounds.
    pub scenario: Scenario,
}

impl Model for Machine {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.scenario)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, transaction) in state.under_way.iter().enumerate() {
            if self.waits_for(state, at).is_none() {
                actions.push(Action::Go(transaction.clone()));
            }
            if state.left.deaths > 0 {
                actions.push(Action::Die(transaction.clone()));
            }
        }
        for message in state.indexes() {
            let is_locked = holder(state, Row::Execution(message), usize::MAX).is_some();
            if state.message(message).status == Status::Runnable && !is_locked {
                actions.push(Action::Claim(message));
            }
        }
        if state.under_way.len() < self.scenario.transactions {
            self.senders(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.apply(&mut state, action);
        state.under_way.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

/// The transaction other than `but` that has locked a row.
fn holder(state: &State, row: Row, but: usize) -> Option<usize> {
    state.under_way.iter().enumerate().position(|(at, other)| at != but && other.held.contains(&row))
}

impl Machine {
    fn senders(&self, state: &State, actions: &mut Vec<Action>) {
        let mut begin = |task: Task| {
            if !state.under_way.iter().any(|one| one.task == task) {
                actions.push(Action::Begin(task));
            }
        };
        if state.left.interrupts > 0 {
            begin(Task::Interrupt);
        }
        if let Some(ended) = state.left_behind {
            begin(Task::HandOver(ended));
        }
        for message in state.indexes() {
            let status = state.message(message).status;
            if status == Status::Unsent {
                begin(Task::Send(message));
            }
            if matches!(status, Status::Queued | Status::Runnable | Status::Held) && state.left.cancels > 0 {
                begin(Task::Cancel(message));
            }
            if status == Status::Held {
                begin(Task::End(message));
                if state.left.expiries > 0 {
                    begin(Task::Reap(message));
                }
            }
        }
    }

    /// The transaction that has the lock that the one at `at` waits for.
    fn waits_for(&self, state: &State, at: usize) -> Option<usize> {
        let transaction = &state.under_way[at];
        match transaction.step(&self.scenario, state) {
            Step::Lock(row, _) if !transaction.skips(row) => holder(state, row, at),
            Step::Lock(..) | Step::TryLock(..) | Step::To(_) | Step::Restart | Step::Over | Step::Commit(_) => None,
        }
    }

    /// Returns true if transactions wait for each other in a circle.
    #[must_use]
    pub fn is_deadlocked(&self, state: &State) -> bool {
        let count = state.under_way.len();
        (0..count).any(|first| {
            let mut at = first;
            for _ in 0..count {
                let Some(next) = self.waits_for(state, at) else { return false };
                if next == first {
                    return true;
                }
                at = next;
            }
            false
        })
    }

    /// Returns the actions possible in `state`.
    #[must_use]
    pub fn possible(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions
    }

    /// Applies a task from its begin to its end, with nothing else under way.
    pub fn carry_out(&self, state: &mut State, task: Task) {
        self.apply(state, Action::Begin(task));
        while let Some(transaction) = state.under_way.first().cloned() {
            self.apply(state, Action::Go(transaction));
        }
    }

    /// Applies an action to `state`.
    pub fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::Begin(task) => {
                match task {
                    Task::Cancel(_) => state.left.cancels -= 1,
                    Task::Interrupt => state.left.interrupts -= 1,
                    Task::Reap(_) => state.left.expiries -= 1,
                    Task::Send(_) | Task::End(_) | Task::HandOver(_) | Task::Stop { .. } => {}
                }
                state.under_way.push(Transaction::new(task));
            }
            Action::Go(transaction) => self.go(state, &transaction),
            Action::Die(transaction) => {
                state.left.deaths -= 1;
                state.under_way.retain(|one| *one != transaction);
            }
            Action::Claim(message) => state.message_mut(message).status = Status::Held,
        }
    }

    fn go(&self, state: &mut State, transaction: &Transaction) {
        let Some(at) = state.under_way.iter().position(|one| one == transaction) else { return };
        match transaction.step(&self.scenario, state) {
            Step::To(phase) => state.under_way[at].phase = phase,
            Step::Lock(row, _) if holder(state, row, at).is_some() => drop(state.under_way.remove(at)),
            Step::Lock(row, phase) => lock(&mut state.under_way[at], row, phase),
            Step::TryLock(row, _, otherwise) if holder(state, row, at).is_some() => match otherwise {
                Some(commit) => self.commit(state, at, commit),
                None => drop(state.under_way.remove(at)),
            },
            Step::TryLock(row, phase, _) => lock(&mut state.under_way[at], row, phase),
            Step::Restart => {
                state.under_way[at] = Transaction { phase: Phase::Begun, ..Transaction::new(transaction.task) }
            }
            Step::Over => drop(state.under_way.remove(at)),
            Step::Commit(commit) => self.commit(state, at, commit),
        }
    }

    fn commit(&self, state: &mut State, at: usize, commit: Commit) {
        let transaction = state.under_way.remove(at);
        transaction.write(&self.scenario, state, commit);
        state.under_way.extend(transaction.second(&self.scenario, state, commit));
    }
}

fn lock(transaction: &mut Transaction, row: Row, phase: Phase) {
    transaction.phase = phase;
    transaction.held.push(row);
    transaction.held.sort_unstable();
}
