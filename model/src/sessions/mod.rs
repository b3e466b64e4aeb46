//! Messages of a session take turns (docs/design/sessions.md): `Store::send_message`, `Store::interrupt_session`,
//! the ends of executions with `longhaul_pass_turn`, and the reaction `session` where an end found the session locked.
//!
//! A message is a transaction of several statements, unlike the statements of [`statement`](crate::statement). It takes
//! one lock after the other, and its writes become visible when it commits. Each read sees everything that was
//! committed before it, as in a volatile function. Leases are left out: [`machine`](crate::machine) has them.

mod machine;
mod properties;
mod transaction;

use crate::check::{Checked, explore};

pub use machine::{Action, Machine};
pub use properties::{IN_ORDER, NO_DEADLOCK, NOTHING_STUCK, ONE_TURN, POLICY_HOLDS, TURN_LIVES};
pub use transaction::{Row, Task, Transaction};

/// Policy for a message that arrives while another is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    Reject,
    Enqueue,
    Interrupt,
    Rollback,
}

impl Policy {
    pub(crate) fn stops(self) -> bool {
        matches!(self, Self::Interrupt | Self::Rollback)
    }
}

/// A rule that is left out; the checker must find the fault that it prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A message trusts the turn that it read before it had the locks.
    UncheckedTurn,
    /// An end that finds the session locked leaves no row for the reaction.
    ForgottenTurn,
    /// The turn is given to a message that was queued when the line was read, and may have ended since.
    BlindHandOver,
    /// The turn is given on in a transaction after the one that ends the execution, which leaves no row for it.
    HandOverApart,
    /// A policy cancels in a transaction after the one that stores its message.
    CancelApart,
}

/// The bounds of a run: one session and its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name in reports.
    pub name: &'static str,
    /// Policies of the messages, which arrive in any order.
    pub messages: Vec<Policy>,
    /// Maximum number of transactions under way.
    pub transactions: usize,
    /// Number of cancels of one execution by a caller.
    pub cancels: u8,
    /// Number of interrupts of the session by a caller.
    pub interrupts: u8,
    /// Number of times a worker dies and its execution is taken back.
    pub expiries: u8,
    /// Number of transactions whose sender dies.
    pub deaths: u8,
    /// The rule that is left out, if any.
    pub broken: Option<Broken>,
}

impl Scenario {
    /// Messages queue up, and callers cancel those that are answered and those that wait.
    #[must_use]
    pub fn queues() -> Self {
        Self {
            name: "queues",
            messages: vec![Policy::Enqueue; 3],
            transactions: 3,
            cancels: 2,
            interrupts: 0,
            expiries: 1,
            deaths: 1,
            broken: None,
        }
    }

    /// Messages stop the one before them, beside an interrupt and a message that is refused while another is answered.
    #[must_use]
    pub fn policies() -> Self {
        Self {
            name: "policies",
            messages: vec![Policy::Interrupt, Policy::Rollback, Policy::Reject],
            cancels: 1,
            interrupts: 1,
            ..Self::queues()
        }
    }

    /// Every scenario.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![Self::queues(), Self::policies()]
    }

    /// Returns the broken twin of this scenario.
    #[must_use]
    pub fn without(self, broken: Broken) -> Self {
        Self { broken: Some(broken), ..self }
    }

    pub(crate) fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }

    pub(crate) fn policy(&self, message: u8) -> Policy {
        self.messages[usize::from(message)]
    }
}

/// Status of the execution that answers a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    Unsent,
    /// Waits for its turn.
    Queued,
    /// Has the turn and waits for a worker.
    Runnable,
    /// A worker holds it.
    Held,
    Ended,
}

/// A message, its row in `session_turns`, and the execution that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    pub status: Status,
    /// Place in the session, from 1; 0 while unsent.
    pub number: u8,
    /// True if its cancellation was requested.
    pub cancel: bool,
    /// True if a later message withdrew it before it was answered.
    pub is_withdrawn: bool,
    /// True if it ended with an answer.
    pub is_answered: bool,
    /// The message that had the turn when this one arrived, if its policy stops that.
    pub stops: Option<u8>,
}

/// Events that may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    pub cancels: u8,
    pub interrupts: u8,
    pub expiries: u8,
    pub deaths: u8,
}

/// The whole state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub messages: Vec<Message>,
    /// `sessions.running`.
    pub running: Option<u8>,
    /// `sessions.turns`.
    pub turns: u8,
    /// Ended execution whose turn the reaction `session` passes on: its row in `ends`.
    pub left_behind: Option<u8>,
    /// Transactions under way, sorted: their order of start makes no difference.
    pub under_way: Vec<Transaction>,
    pub left: Left,
}

impl State {
    /// The first state: a new session.
    #[must_use]
    pub fn first(scenario: &Scenario) -> Self {
        let message = Message {
            status: Status::Unsent,
            number: 0,
            cancel: false,
            is_withdrawn: false,
            is_answered: false,
            stops: None,
        };
        Self {
            messages: vec![message; scenario.messages.len()],
            running: None,
            turns: 0,
            left_behind: None,
            under_way: Vec::new(),
            left: Left {
                cancels: scenario.cancels,
                interrupts: scenario.interrupts,
                expiries: scenario.expiries,
                deaths: scenario.deaths,
            },
        }
    }

    /// Returns a message.
    #[must_use]
    pub fn message(&self, at: u8) -> Message {
        self.messages[usize::from(at)]
    }

    pub(crate) fn message_mut(&mut self, at: u8) -> &mut Message {
        &mut self.messages[usize::from(at)]
    }

    /// Returns the indexes of all messages.
    pub(crate) fn indexes(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.messages.len()).unwrap_or(u8::MAX)
    }

    /// Returns the queued message that follows place `after` in the line.
    pub(crate) fn next_in_line(&self, after: u8) -> Option<u8> {
        let is_behind = |at: &u8| {
            let Message { status, number, .. } = self.message(*at);
            status == Status::Queued && number > after
        };
        self.indexes().filter(is_behind).min_by_key(|&at| self.message(at).number)
    }
}

/// Checks every state of a scenario; for a broken twin, until the first violation.
#[must_use]
pub fn check(scenario: &Scenario) -> Checked {
    explore(Machine { scenario: scenario.clone() }, scenario.broken.is_some())
}
