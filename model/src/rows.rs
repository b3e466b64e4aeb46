//! What Postgres holds, what the processes remember, and which statements are under way.

use crate::{
    scenario::{ESTIMATE, Scenario, Work},
    statement::{Running, Verb},
};

/// What an execution that nobody holds waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// A worker: it is runnable.
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

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// FINISHED.
    Finished,
    /// FAILED `cancelled`.
    Cancelled,
    /// FAILED `crash_loop`: it was the only suspect at the death of its worker.
    Convicted,
}

/// A request to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Nobody has answered.
    Waiting,
    /// Somebody has.
    Decided,
    /// Its execution ended first.
    Closed,
}

/// A row in `reservations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reservation {
    /// It did not fit.
    Waiting,
    /// Reserved; by which lease, once one has taken it.
    Open(Option<u8>),
    /// Charged so much, and not yet noted.
    Settled(u8),
}

/// A row in `parked`. Two rows of one execution differ by the lease that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Parked {
    /// The reason.
    pub wait: Wait,
    /// The lease that parked; of a claim that found no slot, the lease before.
    pub token: u8,
}

/// A row in `executions`, with what hangs on it. Tokens are numbers: the `n`th lease of an execution has token `n`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Execution {
    /// Whether it was submitted or spawned.
    pub exists: bool,
    /// Its end.
    pub end: Option<End>,
    /// Its wait reason.
    pub wait: Option<Wait>,
    /// Who holds it.
    pub worker: Option<u8>,
    /// The lease, or the last one.
    pub token: u8,
    /// Writes made under it.
    pub write: u8,
    /// Whether its cancellation was requested.
    pub cancel: bool,
    /// The wake counter.
    pub wake_seq: u8,
    /// Its row in `parked`.
    pub parked: Option<Parked>,
    /// The journal: which lease recorded each step.
    pub steps: Vec<u8>,
    /// Leases that ended by their own worker's hand, as bits.
    pub ended: u32,
    /// What it asked a person.
    pub asked: Option<Asked>,
    /// Whether its child is open.
    pub open_children: u8,
    /// Whether it is on the list of parents whose children are to be cancelled.
    pub is_ending: bool,
    /// What it reserved.
    pub reservation: Option<Reservation>,
    /// It was held at two deaths and has recorded nothing since (core-rules 5).
    pub is_suspect: bool,
}

/// A row in `workers`, and its row in `worker_heartbeats`: the former is the fence, the latter holds when its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Worker {
    /// Its time ran out.
    pub is_expired: bool,
    /// It was declared dead.
    pub is_dead: bool,
    /// Its time ran out while Postgres was away, or the way to it: it may renew.
    pub is_excused: bool,
    /// It stood still, was cut off, or is gone: whoever declares it dead before it has renewed is right.
    pub is_at_fault: bool,
    /// Suspects that it held at its death, as its row has it.
    pub suspects: u8,
    /// Suspects that it did hold.
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

    /// Whether its process may launch anything. The fence asks less: `dead_at is null`.
    #[must_use]
    pub fn is_alive(self) -> bool {
        !self.is_expired && !self.is_dead
    }
}

/// What a process remembers of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Its token.
    pub token: u8,
    /// Writes acknowledged.
    pub write: u8,
    /// Steps known to be recorded.
    pub steps: u8,
    /// The wake counter it heard of last.
    pub wake_seq: u8,
    /// It was told to stop.
    pub is_cancelled: bool,
    /// What had to happen before it goes on has happened: a decision, the child's end, a grant.
    pub is_ready: bool,
    /// It started its child, or it made its model call.
    pub has_acted: bool,
    /// How it ends; what was decided is repeated until it is acknowledged.
    pub ending: Option<Verb>,
}

/// A worker process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its identity; none when no more are to be had in this scenario.
    pub identity: Option<u8>,
    /// What it holds, by execution.
    pub leases: Vec<Option<Lease>>,
}

/// The one budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    /// The cap.
    pub cap: u8,
    /// What settled reservations came to.
    pub spent: u8,
    /// What the others hold.
    pub reserved: u8,
}

impl Budget {
    pub(crate) fn fits(self) -> bool {
        self.spent + self.reserved + ESTIMATE <= self.cap
    }
}

/// How often each thing may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    /// Expiries.
    pub expiries: u8,
    /// Lost answers.
    pub losses: u8,
    /// Cancels.
    pub cancels: u8,
    /// Hand-backs.
    pub releases: u8,
    /// Retries.
    pub retries: u8,
    /// Outages.
    pub outages: u8,
    /// Raises of the budget.
    pub raises: u8,
    /// Cuts of the way between one process and Postgres.
    pub cuts: u8,
}

/// What was seen to go wrong while a statement was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A write was accepted that was not of the current lease, or of a worker that was declared dead.
    StaleWrite,
    /// A step was recorded over another.
    DoubledStep,
    /// A step was acknowledged and is not there.
    LostStep,
    /// An execution changed after its end.
    ChangedAfterEnd,
    /// A row was inserted where there was one.
    Conflict,
    /// A worker was declared dead that had only been cut off by an outage.
    InnocentBuried,
    /// A child was started by a parent that was over or to be cancelled.
    OrphanBorn,
    /// An execution was convicted although its worker held another suspect when it died.
    InnocentConvicted,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The executions.
    pub executions: Vec<Execution>,
    /// The workers.
    pub workers: Vec<Worker>,
    /// The processes.
    pub processes: Vec<Process>,
    /// The budget.
    pub budget: Budget,
    /// Which execution has each slot.
    pub slots: Vec<Option<u8>>,
    /// Units that model calls really took.
    pub made: u8,
    /// Whether Postgres came back less than a lease ago.
    pub is_young: bool,
    /// Statements under way, in a fixed order: which of them began first makes no difference.
    pub running: Vec<Running>,
    /// What may still happen.
    pub left: Left,
    /// What went wrong.
    pub wrong: Option<Wrong>,
}

impl State {
    /// Everything submitted, every process registered, nothing under way.
    #[must_use]
    pub fn first(scenario: &Scenario) -> Self {
        let execution = |work: &Work| Execution {
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
            open_children: 0,
            is_ending: false,
            reservation: None,
            is_suspect: *work == Work::Suspect,
        };
        let process = |at| Process { identity: Some(at), leases: vec![None; scenario.work.len()] };
        Self {
            executions: scenario.work.iter().map(execution).collect(),
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

    /// An execution.
    #[must_use]
    pub fn execution(&self, at: u8) -> &Execution {
        &self.executions[usize::from(at)]
    }

    pub(crate) fn execution_mut(&mut self, at: u8) -> &mut Execution {
        &mut self.executions[usize::from(at)]
    }

    /// A worker.
    #[must_use]
    pub fn worker(&self, at: u8) -> Worker {
        self.workers[usize::from(at)]
    }

    /// Suspects that a worker holds.
    pub(crate) fn suspects_of(&self, worker: u8) -> u8 {
        let held = self.executions.iter().filter(|row| row.worker == Some(worker) && row.is_suspect).count();
        u8::try_from(held).unwrap_or(u8::MAX)
    }

    /// The process of an identity, while it goes by it.
    pub(crate) fn process_of(&self, identity: u8) -> Option<usize> {
        self.processes.iter().position(|process| process.identity == Some(identity))
    }

    pub(crate) fn note(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    /// Numbers of the executions.
    pub(crate) fn numbers(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.executions.len()).unwrap_or(u8::MAX)
    }
}

impl Execution {
    /// Whether it is there and not over.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.exists && self.end.is_none()
    }

    pub(crate) fn is_held_by(&self, worker: u8, token: u8) -> bool {
        self.end.is_none() && self.worker == Some(worker) && self.token == token
    }
}
