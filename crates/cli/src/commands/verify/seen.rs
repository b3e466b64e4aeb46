//! What was seen from outside: by the load, the model server, the tool server, and whoever did the faults. Together with the database
//! it is all that the audit judges by.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_shared::{
    domain::{ExecutionId, WorkerId},
    store::audit::{
        AuditedAttempt, AuditedBudget, AuditedExecution, AuditedStep, AuditedWorker, BrokenHistory, Leftovers,
    },
};

use super::faults::FaultKind;

/// The lease of a worker: the default, with which the fleet runs.
pub const LEASE: TimeDelta = TimeDelta::seconds(6);

/// Everything.
#[derive(Debug, Default)]
pub struct Evidence {
    /// What was submitted.
    pub submits: Vec<Submit>,
    /// What the model was asked.
    pub asked: Vec<Asked>,
    /// What the tools did.
    pub effects: Vec<Effect>,
    /// What was broken.
    pub faults: Vec<Fault>,
    /// Every process of the fleet that ever was.
    pub processes: Vec<Process>,
    /// Every worker that ever was, by its row.
    pub workers: HashMap<WorkerId, AuditedWorker>,
    /// Processes that ended although nobody had asked them to, or did not when asked, and faults that did nothing.
    pub complaints: Vec<String>,
    /// Wake-ups that faults threw away.
    pub wakeups_lost: usize,
    /// The rows, when all was quiet.
    pub executions: Vec<AuditedExecution>,
    /// Their leases.
    pub attempts: Vec<AuditedAttempt>,
    /// Their turns and calls.
    pub steps: Vec<AuditedStep>,
    /// Budgets of trees.
    pub budgets: Vec<AuditedBudget>,
    /// Those whose history contradicts itself.
    pub histories: Vec<BrokenHistory>,
    /// What was left of them.
    pub leftovers: Leftovers,
    /// When the first submit was due, and the last.
    pub load: Option<(DateTime<Utc>, DateTime<Utc>)>,
}

impl Evidence {
    /// The process that held a lease; `None` when nobody saw the row of its worker.
    #[must_use]
    pub fn pid(&self, attempt: &AuditedAttempt) -> Option<i32> {
        self.workers.get(&attempt.worker).map(|worker| worker.pid)
    }
}

/// One execution as its submitter saw it.
#[derive(Debug, Clone, Default)]
pub struct Submit {
    /// Its number.
    pub number: i64,
    /// The ids that 2xx answers named, in order.
    pub answers: Vec<ExecutionId>,
    /// Requests it took to get the first.
    pub tries: u32,
    /// An answer that no repetition can better.
    pub refused: Option<String>,
}

/// One request to the model.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The number of the answer, which its text repeats.
    pub number: usize,
    /// Its idempotency key.
    pub key: String,
    /// Who asked.
    pub process: String,
    /// For which execution.
    pub execution: i64,
    /// For which of its turns, by the answers that the request repeats.
    pub turn: usize,
    /// When.
    pub at: DateTime<Utc>,
    /// When the whole answer had been handed to the connection; `None` when whoever asked was gone.
    pub answered_at: Option<DateTime<Utc>>,
}

/// One execution of a tool.
#[derive(Debug, Clone)]
pub struct Effect {
    /// Its number, which its answer repeats.
    pub number: usize,
    /// Which tool.
    pub tool: CountedTool,
    /// The idempotency key that the call carried.
    pub key: String,
    /// Who called.
    pub process: String,
    /// For which execution.
    pub execution: i64,
    /// Which of its calls, by what the model wrote.
    pub call: i64,
    /// When.
    pub at: DateTime<Utc>,
}

/// The tools, by what running them twice would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CountedTool {
    /// Changes nothing.
    Look,
    /// The same key changes things once. Now and then its answer is lost.
    Put,
    /// Must not run twice.
    Charge,
    /// Must not run twice, and its answer is always lost.
    ChargeUnanswered,
}

impl CountedTool {
    /// All.
    pub const ALL: [Self; 4] = [Self::Look, Self::Put, Self::Charge, Self::ChargeUnanswered];

    /// As the server lists it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Put => "put",
            Self::Charge => "charge",
            Self::ChargeUnanswered => "charge_unanswered",
        }
    }
}

/// A process of the fleet.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its name: the role, and the number of its start.
    pub name: String,
    /// Its process id.
    pub pid: i32,
}

/// Something that was broken.
#[derive(Debug, Clone)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// Whose process, for faults that have one victim.
    pub process: Option<String>,
    /// From when.
    pub from: DateTime<Utc>,
    /// Until when.
    pub until: DateTime<Utc>,
}

impl Fault {
    /// Whether it may have kept `process` from recording what it was answered.
    #[must_use]
    pub fn disturbs(&self, process: &str) -> bool {
        match self.kind.reach() {
            Reach::Victim => self.process.as_deref() == Some(process),
            Reach::Everybody => true,
            Reach::Nobody => false,
        }
    }
}

/// Whose journal a fault may interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// One process.
    Victim,
    /// Every process.
    Everybody,
    /// None: it must not show in what is asked or done at all.
    Nobody,
}
