//! The transactions of a session: the locks that each takes in order, and the writes of its commit.

use super::{Broken, Message, Policy, Scenario, State, Status};

/// A row that transactions lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Row {
    Session,
    /// The execution of a message.
    Execution(u8),
}

/// The purpose of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// `Store::send_message`.
    Send(u8),
    /// `Store::interrupt_session`.
    Interrupt,
    /// `sql/cancel.sql`, for a caller.
    Cancel(u8),
    /// `sql/conclude.sql`, by its worker.
    End(u8),
    /// `sql/reap.sql`, after the death of its worker.
    Reap(u8),
    /// `Store::pass_turn`: the reaction gives the turn of an ended execution on.
    HandOver(u8),
    /// Cancels `running` for the policy of `by` (broken twin).
    Stop { by: u8, running: u8 },
}

/// Progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    Begun,
    /// It has read without a lock that this message has the turn.
    Read(Option<u8>),
    /// It has the first of its two locks: of that message's execution, if there is one.
    First(Option<u8>),
    /// It has the locks of that message's execution and of the session.
    Both(Option<u8>),
    /// It has the lock of its execution.
    Locked,
    /// It ends this execution, in the trigger.
    Ending(u8),
    /// It ends this execution and has the lock of the session.
    Turn(u8),
    /// It gives the turn of `ended` to `next`, if there is one, and has no lock of it yet.
    Giving {
        ended: u8,
        next: Option<u8>,
    },
    /// As `Giving`, with the lock of `next`.
    Given {
        ended: u8,
        next: u8,
    },
}

/// A transaction under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transaction {
    pub task: Task,
    pub phase: Phase,
    /// Locked rows, sorted.
    pub held: Vec<Row>,
}

/// The next step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    To(Phase),
    /// It waits for this row, locks it, and moves to this phase.
    Lock(Row, Phase),
    /// It locks this row and moves to this phase; if another transaction has the row, it commits this instead, or ends
    /// without a write.
    TryLock(Row, Phase, Option<Commit>),
    /// It releases its locks and begins again.
    Restart,
    /// It ends without a write.
    Over,
    Commit(Commit),
}

/// The writes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Commit {
    /// Execution that ends.
    pub(super) ends: Option<u8>,
    /// New holder of the turn; `None` if the transaction does not change the turn.
    pub(super) turn: Option<Option<u8>>,
    /// Execution that is cancelled and held by a worker.
    pub(super) asks: Option<u8>,
    /// True if the execution that ends leaves a row for the reaction.
    pub(super) leaves: bool,
}

impl Commit {
    const NOTHING: Self = Self { ends: None, turn: None, asks: None, leaves: false };
}

impl Transaction {
    pub(super) fn new(task: Task) -> Self {
        Self { task, phase: Phase::Begun, held: Vec::new() }
    }

    /// Returns true if the statement skips a locked execution; its sender tries again later.
    pub(super) fn skips(&self, row: Row) -> bool {
        matches!(self.task, Task::End(own) | Task::Reap(own) if row == Row::Execution(own))
    }

    pub(super) fn step(&self, scenario: &Scenario, state: &State) -> Step {
        match self.phase {
            Phase::Begun => match self.task {
                Task::Send(_) | Task::Interrupt => Step::To(Phase::Read(state.running)),
                Task::Cancel(own) | Task::End(own) | Task::Reap(own) | Task::Stop { running: own, .. } => {
                    Step::Lock(Row::Execution(own), Phase::Locked)
                }
                Task::HandOver(ended) => Step::To(Phase::Ending(ended)),
            },
            Phase::Read(_) | Phase::First(_) => self.lock_both(),
            Phase::Both(seen) if seen != state.running && !scenario.is(Broken::UncheckedTurn) => Step::Restart,
            Phase::Both(seen) => self.decide(scenario, state, seen),
            Phase::Locked => self.own(state),
            Phase::Ending(own) => {
                let is_apart = scenario.is(Broken::HandOverApart) && !matches!(self.task, Task::HandOver(_));
                let end = Commit { ends: Some(own), ..Commit::NOTHING };
                let later = match self.task {
                    Task::HandOver(_) => None,
                    Task::Send(_)
                    | Task::Interrupt
                    | Task::Cancel(_)
                    | Task::End(_)
                    | Task::Reap(_)
                    | Task::Stop { .. } => Some(Commit { leaves: !scenario.is(Broken::ForgottenTurn), ..end }),
                };
                match state.running == Some(own) && !is_apart {
                    true => Step::TryLock(Row::Session, Phase::Turn(own), later),
                    false => Step::Commit(end),
                }
            }
            Phase::Turn(own) if state.running != Some(own) => {
                Step::Commit(Commit { ends: Some(own), ..Commit::NOTHING })
            }
            Phase::Turn(own) => Step::To(self.giving(state, own, 0)),
            // The message of this transaction is visible to no other, and so is its row.
            Phase::Giving { ended, next } if next.is_none() || self.task == Task::Send(next.unwrap_or(u8::MAX)) => {
                Step::Commit(Commit { ends: Some(ended), turn: Some(next), ..Commit::NOTHING })
            }
            Phase::Giving { ended, next } => {
                let next = next.unwrap_or(u8::MAX);
                Step::Lock(Row::Execution(next), Phase::Given { ended, next })
            }
            Phase::Given { ended, next } => {
                let Message { status, number, .. } = state.message(next);
                match status == Status::Queued || scenario.is(Broken::BlindHandOver) {
                    true => Step::Commit(Commit { ends: Some(ended), turn: Some(Some(next)), ..Commit::NOTHING }),
                    false => Step::To(self.giving(state, ended, number)),
                }
            }
        }
    }

    /// The execution that has the turn, then the session.
    fn lock_both(&self) -> Step {
        match self.phase {
            Phase::Read(Some(seen)) => Step::Lock(Row::Execution(seen), Phase::First(Some(seen))),
            Phase::Read(None) => Step::To(Phase::First(None)),
            Phase::First(seen) => Step::Lock(Row::Session, Phase::Both(seen)),
            Phase::Begun
            | Phase::Both(_)
            | Phase::Locked
            | Phase::Ending(_)
            | Phase::Turn(_)
            | Phase::Giving { .. }
            | Phase::Given { .. } => Step::Over,
        }
    }

    /// What a message or an interrupt does, under both locks.
    fn decide(&self, scenario: &Scenario, state: &State, running: Option<u8>) -> Step {
        let stops = match self.task {
            Task::Send(own) if scenario.policy(own) == Policy::Reject && running.is_some() => return Step::Over,
            Task::Send(own) => scenario.policy(own).stops() && !scenario.is(Broken::CancelApart),
            Task::Interrupt
            | Task::Cancel(_)
            | Task::End(_)
            | Task::Reap(_)
            | Task::HandOver(_)
            | Task::Stop { .. } => true,
        };
        match running.filter(|_| stops) {
            Some(running) => self.cancel(state, running, |ended| self.giving(state, ended, 0)),
            None if self.task == Task::Interrupt => Step::Over,
            None => Step::Commit(Commit::NOTHING),
        }
    }

    /// A statement that has locked its execution reads it again.
    fn own(&self, state: &State) -> Step {
        match self.task {
            Task::Cancel(own) | Task::Stop { running: own, .. } => self.cancel(state, own, Phase::Ending),
            Task::End(own) if state.message(own).status == Status::Held => Step::To(Phase::Ending(own)),
            Task::Reap(own) if state.message(own).status == Status::Held => match state.message(own).cancel {
                true => Step::To(Phase::Ending(own)),
                false => Step::Commit(Commit::NOTHING),
            },
            Task::Send(_) | Task::Interrupt | Task::End(_) | Task::Reap(_) | Task::HandOver(_) => Step::Over,
        }
    }

    /// `sql/cancel.sql`: ends an execution that no worker holds, and marks one that a worker holds.
    fn cancel(&self, state: &State, execution: u8, ends: impl FnOnce(u8) -> Phase) -> Step {
        match (state.message(execution).status, self.task) {
            (Status::Queued | Status::Runnable, _) => Step::To(ends(execution)),
            (Status::Held, _) => Step::Commit(Commit { asks: Some(execution), ..Commit::NOTHING }),
            (Status::Unsent | Status::Ended, Task::Send(_)) => Step::Commit(Commit::NOTHING),
            (Status::Unsent | Status::Ended, _) => Step::Over,
        }
    }

    /// The line as it is read under the session's lock; the message of this transaction is its last.
    fn giving(&self, state: &State, ended: u8, after: u8) -> Phase {
        let own = match self.task {
            Task::Send(own) => Some(own),
            Task::Interrupt
            | Task::Cancel(_)
            | Task::End(_)
            | Task::Reap(_)
            | Task::HandOver(_)
            | Task::Stop { .. } => None,
        };
        Phase::Giving { ended, next: state.next_in_line(after).or(own) }
    }

    /// Applies the writes of a commit.
    pub(super) fn write(&self, scenario: &Scenario, state: &mut State, commit: Commit) {
        let is_withdrawn = match self.task {
            Task::Send(own) => self.place(scenario, state, own) == Policy::Rollback,
            Task::Stop { by, .. } => scenario.policy(by) == Policy::Rollback,
            Task::Reap(own) if commit.ends.is_none() => {
                state.message_mut(own).status = Status::Runnable;
                false
            }
            Task::Interrupt | Task::Cancel(_) | Task::End(_) | Task::Reap(_) | Task::HandOver(_) => false,
        };
        if let Some(stopped) = commit.asks.or(commit.ends) {
            let row = state.message_mut(stopped);
            row.cancel |= !matches!(self.task, Task::End(_) | Task::HandOver(_));
            row.is_withdrawn |= is_withdrawn;
        }
        if let Some(ended) = commit.ends {
            let row = state.message_mut(ended);
            row.status = Status::Ended;
            if matches!(self.task, Task::End(_)) {
                // Its reader was told the answer, so it is remembered.
                (row.is_answered, row.is_withdrawn) = (true, false);
            }
            state.left_behind = state.left_behind.filter(|left| *left != ended).or(commit.leaves.then_some(ended));
        }
        if let Some(turn) = commit.turn {
            state.running = turn;
            if let Some(next) = turn.map(|next| state.message_mut(next)).filter(|next| next.status == Status::Queued) {
                next.status = Status::Runnable;
            }
        }
    }

    /// Stores a message with its place in the session. Returns its policy.
    fn place(&self, scenario: &Scenario, state: &mut State, own: u8) -> Policy {
        let policy = scenario.policy(own);
        let seen = match self.phase {
            Phase::Both(seen) => seen,
            Phase::Giving { ended, .. } | Phase::Given { ended, .. } => Some(ended),
            Phase::Begun | Phase::Read(_) | Phase::First(_) | Phase::Locked | Phase::Ending(_) | Phase::Turn(_) => None,
        };
        state.turns += 1;
        let number = state.turns;
        let status = if seen.is_none() { Status::Runnable } else { Status::Queued };
        // An execution that has ended, and whose turn is about to pass on, has nothing to stop.
        let stopped = seen.filter(|seen| policy.stops() && state.message(*seen).status != Status::Ended);
        *state.message_mut(own) =
            Message { status, number, cancel: false, is_withdrawn: false, is_answered: false, stops: stopped };
        if seen.is_none() {
            state.running = Some(own);
        }
        policy
    }

    /// The transaction that a broken twin begins after this one's commit.
    pub(super) fn second(&self, scenario: &Scenario, state: &State, commit: Commit) -> Option<Self> {
        let task = match (self.task, commit.ends) {
            (Task::HandOver(_), _) => return None,
            (Task::Send(by), _) if scenario.is(Broken::CancelApart) => {
                Task::Stop { by, running: state.message(by).stops? }
            }
            (_, Some(ended)) if scenario.is(Broken::HandOverApart) => Task::HandOver(ended),
            (_, _) => return None,
        };
        Some(Self::new(task))
    }
}
