//! The state: the contents of Postgres, the memory of the processes, and the statements under way.

use crate::{
    scenario::{ESTIMATE, Scenario, Work},
    statement::{Ending, Running},
};

/// Wait reason of an execution without a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// Runnable; it waits for a worker.
    Worker,
    /// The end of a backoff.
    Backoff,
    /// A person.
    Approval,
    /// Its child.
    Children,
    /// Its budget.
    Budget,
    /// A slot of its limit.
    Slot,
}

/// Outcome of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// FINISHED.
    Finished,
    /// FAILED `cancelled`.
    Cancelled,
    /// FAILED `crash_loop`: it was the only suspect at the death of its worker.
    Convicted,
}

/// An approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Not decided.
    Waiting,
    /// Decided.
    Decided,
    /// Its execution ended first.
    Closed,
}

/// A row in `reservations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reservation {
    /// It did not fit.
    Waiting,
    /// Reserved; with the token of the lease that took it, once one has.
    Open(Option<u8>),
    /// Charged this much, and not yet booked.
    Settled(u8),
}

/// A row in `parked`. Two rows of one execution differ by the lease that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Parked {
    pub wait: Wait,
    /// The lease that parked; for a claim that found no slot, the lease before.
    pub token: u8,
}

/// A row in `executions`, with the rows that belong to it. Tokens are numbers: the `n`th lease of an execution has
/// token `n`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Execution {
    /// True once it was submitted or spawned.
    pub exists: bool,
    pub end: Option<End>,
    pub wait: Option<Wait>,
    /// The worker that holds it.
    pub worker: Option<u8>,
    /// The token of the current lease, or of the last one.
    pub token: u8,
    /// Number of writes under that token.
    pub write: u8,
    /// True if its cancellation was requested.
    pub cancel: bool,
    /// The wake counter.
    pub wake_seq: u8,
    /// Its row in `parked`.
    pub parked: Option<Parked>,
    /// The journal: the token that recorded each step.
    pub steps: Vec<u8>,
    /// Tokens of leases that their own worker ended, as a bit set.
    pub ended: u32,
    /// Its approval request.
    pub asked: Option<Asked>,
    /// Number of open children, 0 or 1.
    pub open_children: u8,
    /// True if it is on the work list of parents whose children are to be cancelled.
    pub is_ending: bool,
    /// Its reservation.
    pub reservation: Option<Reservation>,
    /// True if it was held at two worker deaths and has recorded nothing since (core-rules 5).
    pub is_suspect: bool,
}

/// A row in `workers`, which is the fence, with its row in `worker_heartbeats`, which holds the expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Worker {
    /// True if its lease has expired.
    pub is_expired: bool,
    /// True if it was declared dead.
    pub is_dead: bool,
    /// True if it expired during an outage or without a connection to Postgres: it may renew.
    pub is_excused: bool,
    /// True if it was paused, cut off, or is gone: until it renews, it may rightly be declared dead.
    pub is_at_fault: bool,
    /// Number of suspects at its death, as stored in its row.
    pub suspects: u8,
    /// Actual number of suspects at its death.
    pub held_suspects: u8,
}

impl Worker {
    pub(crate) const FRESH: Self = Self {
        is_expired: false,
        is_dead: false,
        is_excused: false,
        is_at_fault: false,
        suspects: 0,
        held_suspects: 0,
    };

    /// Returns true if its process may launch anything. The fence requires less: `dead_at is null`.
    #[must_use]
    pub fn is_alive(self) -> bool {
        !self.is_expired && !self.is_dead
    }
}

/// A process's memory of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    pub token: u8,
    /// Number of acknowledged writes.
    pub write: u8,
    /// True if another write was sent and is not acknowledged. Noted only where an end may carry a write, which then
    /// has the number after it.
    pub is_in_doubt: bool,
    /// Number of steps known to be recorded.
    pub steps: u8,
    /// The last wake counter that the process received.
    pub wake_seq: u8,
    /// True if the process was told to stop.
    pub is_cancelled: bool,
    /// True once the attempt may continue: after a decision, the child's end, or a grant.
    pub is_ready: bool,
    /// True once it has started its child or made its model call.
    pub has_acted: bool,
    /// The chosen outcome; it is repeated until it is acknowledged.
    pub ending: Option<Ending>,
}

/// A worker process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its worker; `None` if the scenario allows no more.
    pub identity: Option<u8>,
    /// Its leases, by execution.
    pub leases: Vec<Option<Lease>>,
}

/// The only budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    pub cap: u8,
    /// Sum of the settled reservations.
    pub spent: u8,
    /// Sum of the other reservations.
    pub reserved: u8,
}

impl Budget {
    pub(crate) fn fits(self) -> bool {
        self.spent + self.reserved + ESTIMATE <= self.cap
    }
}

/// The number of times that each event may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    /// Expired leases.
    pub expiries: u8,
    /// Lost replies.
    pub losses: u8,
    /// Cancels.
    pub cancels: u8,
    /// Releases.
    pub releases: u8,
    /// Retries.
    pub retries: u8,
    /// Postgres outages.
    pub outages: u8,
    /// Raises of the budget.
    pub raises: u8,
    /// Lost connections between one process and Postgres.
    pub cuts: u8,
}

/// A violation seen while a statement was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A write was accepted from a lease that is not current, or from a dead worker.
    StaleWrite,
    /// A step was recorded over another.
    DoubledStep,
    /// A step was acknowledged but is missing.
    LostStep,
    /// A step was recorded, and one before it was not.
    SkippedStep,
    /// An execution changed after its end.
    ChangedAfterEnd,
    /// A row was inserted where one existed.
    Conflict,
    /// A worker was declared dead although only an outage had cut it off.
    InnocentBuried,
    /// A parent that had ended or was to be cancelled started a child.
    OrphanBorn,
    /// An execution was convicted although its worker held another suspect when it died.
    InnocentConvicted,
}

/// The whole state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub executions: Vec<Execution>,
    pub workers: Vec<Worker>,
    pub processes: Vec<Process>,
    pub budget: Budget,
    /// The execution that holds each slot.
    pub slots: Vec<Option<u8>>,
    /// Units that model calls really cost.
    pub made: u8,
    /// True if Postgres came back less than a lease ago.
    pub is_young: bool,
    /// Statements under way, sorted: their order of start makes no difference.
    pub running: Vec<Running>,
    /// The events that may still happen.
    pub left: Left,
    /// The first violation.
    pub wrong: Option<Wrong>,
}

impl State {
    /// The first state: everything submitted, every process registered, no statement under way.
    #[must_use]
    pub fn first(scenario: &Scenario) -> Self {
        let is_there = |at: &u8| matches!(scenario.work(*at), Work::PayingChild(_));
        let open_children = |at: u8| scenario.children_of(at).filter(is_there).count();
        let execution = |(at, work): (u8, &Work)| Execution {
            exists: !matches!(work, Work::Child(_)),
            end: None,
            wait: Some(Wait::Worker),
            worker: None,
            token: 0,
            write: 0,
            cancel: false,
            wake_seq: 0,
            parked: None,
            steps: Vec::new(),
            ended: 0,
            asked: None,
            open_children: u8::try_from(open_children(at)).unwrap_or(u8::MAX),
            is_ending: false,
            reservation: None,
            is_suspect: *work == Work::Suspect,
        };
        let process = |at| Process { identity: Some(at), leases: vec![None; scenario.work.len()] };
        Self {
            executions: (0..).zip(&scenario.work).map(execution).collect(),
            workers: vec![Worker::FRESH; usize::from(scenario.processes)],
            processes: (0..scenario.processes).map(process).collect(),
            budget: Budget { cap: scenario.cap, spent: 0, reserved: 0 },
            slots: vec![None; usize::from(scenario.slots)],
            made: 0,
            is_young: false,
            running: Vec::new(),
            left: Left {
                expiries: scenario.expiries,
                losses: scenario.losses,
                cancels: scenario.cancels,
                releases: scenario.releases,
                retries: scenario.retries,
                outages: scenario.outages,
                raises: scenario.raises,
                cuts: scenario.cuts,
            },
            wrong: None,
        }
    }

    /// Returns an execution.
    #[must_use]
    pub fn execution(&self, at: u8) -> &Execution {
        &self.executions[usize::from(at)]
    }

    pub(crate) fn execution_mut(&mut self, at: u8) -> &mut Execution {
        &mut self.executions[usize::from(at)]
    }

    /// Returns a worker.
    #[must_use]
    pub fn worker(&self, at: u8) -> Worker {
        self.workers[usize::from(at)]
    }

    /// Number of suspects that a worker holds.
    pub(crate) fn suspects_of(&self, worker: u8) -> u8 {
        let held = self.executions.iter().filter(|row| row.worker == Some(worker) && row.is_suspect).count();
        u8::try_from(held).unwrap_or(u8::MAX)
    }

    /// Returns the process that currently has this worker.
    pub(crate) fn process_of(&self, identity: u8) -> Option<usize> {
        self.processes.iter().position(|process| process.identity == Some(identity))
    }

    pub(crate) fn note(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    /// Returns the numbers of all executions.
    pub(crate) fn numbers(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.executions.len()).unwrap_or(u8::MAX)
    }
}

impl Execution {
    /// Returns true if it exists and has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.exists && self.end.is_none()
    }

    /// Returns true if its own worker ended the lease with this token.
    pub(crate) fn has_ended(&self, token: u8) -> bool {
        self.ended & (1 << token) != 0
    }

    pub(crate) fn is_held_by(&self, worker: u8, token: u8) -> bool {
        self.end.is_none() && self.worker == Some(worker) && self.token == token
    }
}
