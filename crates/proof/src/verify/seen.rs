//! The evidence: observations of the load, the model server, the tool server and the fault injector, and rows of the
//! database. The audit judges by nothing else.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_domain::{ExecutionId, WorkerId};
use longhaul_store::proof::audit::{
    AuditedAttempt, AuditedBudget, AuditedExecution, AuditedMemory, AuditedProject, AuditedStep, AuditedTranscript,
    AuditedWorker, BrokenHistory, Leftovers,
};
use longhaul_store::proof::audited_schedules::AuditedSchedule;

use super::fault_kind::{FaultKind, FaultScope};

/// Lease of a worker: the default, which the fleet uses.
pub const LEASE: TimeDelta = TimeDelta::seconds(6);

/// All evidence of a run.
#[derive(Debug, Default)]
pub struct Evidence {
    pub submits: Vec<Submit>,
    /// Requests to the model.
    pub asked: Vec<SeenRequest>,
    /// Executions of tools.
    pub effects: Vec<Effect>,
    /// Injected faults.
    pub faults: Vec<Fault>,
    /// Every process of the fleet ever started.
    pub processes: Vec<Process>,
    /// Every worker ever seen, by its row.
    pub workers: HashMap<WorkerId, AuditedWorker>,
    /// Processes that ended unexpectedly or did not end when asked, and faults without effect.
    pub complaints: Vec<String>,
    /// Number of wake-ups lost by faults.
    pub wakeups_lost: usize,
    /// Rows of the executions at the end.
    pub executions: Vec<AuditedExecution>,
    /// Leases of the executions.
    pub attempts: Vec<AuditedAttempt>,
    /// Turns and calls of the executions.
    pub steps: Vec<AuditedStep>,
    /// Budgets of execution trees.
    pub budgets: Vec<AuditedBudget>,
    /// Executions that memory takes.
    pub memories: Vec<AuditedMemory>,
    /// Projects with their tasks.
    pub projects: Vec<AuditedProject>,
    /// Schedules with their firings.
    pub schedules: Vec<AuditedSchedule>,
    /// Transcripts of the sessions.
    pub transcripts: Vec<AuditedTranscript>,
    /// Executions with an inconsistent history.
    pub histories: Vec<BrokenHistory>,
    /// Rows left behind at the end.
    pub leftovers: Leftovers,
    /// What the webhook was told; `None` without one.
    pub told: Option<Vec<ToldEnd>>,
    /// Executions of the hostile tenant that FAILED, with their codes.
    pub failed_of_others: Vec<(ExecutionId, String)>,
    /// Start and end of the load.
    pub load: Option<(DateTime<Utc>, DateTime<Utc>)>,
}

impl Evidence {
    /// Process id of the lease's holder; `None` if its worker's row was never seen.
    #[must_use]
    pub fn pid(&self, attempt: &AuditedAttempt) -> Option<i32> {
        self.workers.get(&attempt.worker).map(|worker| worker.pid)
    }

    /// Gives each run of a schedule the number under which the model server knows it, by the key of its first turn: the
    /// runs of a schedule have one input. A run that recorded no turn has the number -1.
    #[must_use]
    pub fn with_numbered_runs(mut self) -> Self {
        let asked: HashMap<&str, i64> = self.asked.iter().map(|one| (one.key.as_str(), one.execution)).collect();
        let mut numbers: HashMap<ExecutionId, i64> = HashMap::new();
        for turn in self.steps.iter().filter(|step| step.kind == "turn") {
            if let Some(&number) = asked.get(turn.idempotency_key.as_str()) {
                numbers.entry(turn.execution).or_insert(number);
            }
        }
        for run in self.executions.iter_mut().filter(|execution| execution.schedule.is_some()) {
            run.number = numbers.get(&run.id).copied().unwrap_or(-1);
        }
        self
    }
}

/// An execution from its submitter's view.
#[derive(Debug, Clone, Default)]
pub struct Submit {
    /// Number given by the submitter.
    pub number: i64,
    /// Ids from 2xx answers, in order.
    pub answers: Vec<ExecutionId>,
    /// Number of requests sent.
    pub tries: u32,
    /// A refusal that no repeat can change.
    pub refused: Option<String>,
}

/// A request to the model.
#[derive(Debug, Clone, Default)]
pub struct SeenRequest {
    /// Number of the answer, which its text repeats.
    pub number: usize,
    /// Idempotency key.
    pub key: String,
    /// Name of the requesting process.
    pub process: String,
    /// Number of the execution.
    pub execution: i64,
    /// Index of the turn within the execution, from the number of earlier answers in the request.
    pub turn: usize,
    /// Numbers of the earlier messages of its session that the request repeats, in order.
    pub before: Vec<i64>,
    pub at: DateTime<Utc>,
    /// Time at which the whole answer had been handed to the connection; `None` if the client was gone.
    pub answered_at: Option<DateTime<Utc>>,
}

/// An execution of a tool.
#[derive(Debug, Clone)]
pub struct Effect {
    /// Number of the effect, which its answer repeats.
    pub number: usize,
    pub tool: CountedTool,
    /// Idempotency key of the call.
    pub key: String,
    /// Name of the calling process.
    pub process: String,
    /// Number of the execution.
    pub execution: i64,
    /// Number of the call within the execution, as the model wrote it.
    pub call: i64,
    pub at: DateTime<Utc>,
}

/// The tools, by the consequence of running them twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CountedTool {
    /// Read-only.
    Look,
    /// Idempotent under its key. Some first answers are lost.
    Put,
    /// A side effect that must not run twice.
    Charge,
    /// A side effect that must not run twice, and whose answer is always lost.
    ChargeUnanswered,
}

impl CountedTool {
    pub const ALL: [Self; 4] = [Self::Look, Self::Put, Self::Charge, Self::ChargeUnanswered];

    /// The tool's name on the server.
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

/// A request to the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldEnd {
    /// Id of the delivery.
    pub id: String,
    pub event: String,
    pub execution: String,
}

/// A process of the fleet.
#[derive(Debug, Clone)]
pub struct Process {
    /// The role and the number of its start.
    pub name: String,
    pub pid: i32,
}

/// An injected fault.
#[derive(Debug, Clone)]
pub struct Fault {
    pub kind: FaultKind,
    /// Name of the victim process, for faults with one victim.
    pub process: Option<String>,
    pub from: DateTime<Utc>,
    pub until: DateTime<Utc>,
}

impl Fault {
    /// Returns true if the fault may have kept `process` from recording an answer.
    #[must_use]
    pub fn disturbs(&self, process: &str) -> bool {
        match self.kind.reach() {
            FaultScope::Victim => self.process.as_deref() == Some(process),
            FaultScope::Everybody => true,
            FaultScope::Nobody => false,
        }
    }
}
