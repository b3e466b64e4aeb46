//! Explanation of a wait.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::quarantine::Holding;
use longhaul_domain::{ExecutionId, ExecutionStatus, LimitKey, SessionId, WaitReason, WorkerId};

/// Place of a message in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTurn {
    pub session: SessionId,
    /// Execution that has the turn.
    pub running: Option<ExecutionId>,
    /// Messages that are answered before it, the one under way included.
    pub ahead: i64,
}

/// State of an execution, with everything that explains it.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub status: ExecutionStatus,
    /// Wait reason; `None` while a worker holds it and once it is over.
    pub reason: Option<WaitReason>,
    /// Time at which this state began.
    pub since: DateTime<Utc>,
    /// Latest end of the wait.
    pub until: Option<DateTime<Utc>>,
    pub deadline_at: DateTime<Utc>,
    pub failure_code: Option<String>,
    /// Words of a failed execution.
    pub failure: Option<FailureWords>,
    /// Worker that holds it.
    pub worker: Option<WorkerId>,
    /// Tool servers that its worker is starting for it.
    pub starting: Vec<String>,
    pub queue: String,
    pub definition_key: String,
    pub definition_version: Option<i32>,
    /// Place in line, if it waits for a worker or a slot.
    pub place: Option<PlaceInLine>,
    /// Live workers that serve it.
    pub workers: Option<LiveWorkers>,
    /// Requirements on a worker, beyond what every worker has.
    pub requirements: Vec<String>,
    /// Limits of which it needs slots.
    pub limits: Vec<LimitStanding>,
    /// Open requests to people.
    pub requests: Vec<OpenRequest>,
    /// Number of open children.
    pub open_children: i32,
    /// Some of the open children.
    pub children: Vec<OpenChild>,
    /// Failure of its last attempt.
    pub last_failure: Option<LastFailure>,
    /// Model endpoint that it waits for.
    pub endpoint: Option<EndpointStanding>,
    /// Place in its session, if it waits for its turn there.
    pub turn: Option<SessionTurn>,
    /// Reason why new executions like it are held back.
    pub holding: Option<Holding>,
    /// Estimate of the rest of the wait.
    pub estimate: Estimate,
}

/// Texts about a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailureWords {
    /// By the model, a tool or Longhaul.
    pub summary: Option<String>,
    /// Validator that refused the last answer, and the start of its feedback.
    pub validator: Option<String>,
    pub feedback: Option<String>,
}

/// A place in a line. Counts stop at [`COUNT_CAP`](super::COUNT_CAP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceInLine {
    /// Executions of its own tenant ahead of it.
    pub ahead: i64,
    /// Other tenants in the same line, which share it.
    pub other_tenants: i64,
}

/// Live workers that serve an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveWorkers {
    /// Number of workers.
    pub count: i64,
    /// Most executions that they run at a time.
    pub permits: i64,
    /// Least number of free permits: an execution whose end is being written still counts as held.
    pub free: i64,
}

/// A limit of which an execution needs a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitStanding {
    /// `definition`, `agent` or `operator`.
    pub source: String,
    /// Definition or agent that declares it.
    pub subject: Option<String>,
    /// Attribute by which executions are grouped.
    pub key: LimitKey,
    /// Most executions that run at a time.
    pub max: i32,
    /// Held slots.
    pub held: i64,
    /// Some of the holders of its own tenant.
    pub holders: Vec<ExecutionId>,
    /// Slots held by other tenants.
    pub held_by_others: i64,
    /// True if the execution is in this line.
    pub is_waited_for: bool,
}

/// A request to a person or the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenRequest {
    pub id: Uuid,
    /// `approval`, `question` or `tool_call`.
    pub kind: String,
    /// Id of the call in the transcript.
    pub call_id: String,
    /// Tool that would run.
    pub tool: String,
    /// Time after which the request expires.
    pub expires_at: DateTime<Utc>,
}

/// An open child.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenChild {
    pub id: ExecutionId,
    pub status: String,
    pub wait_reason: Option<String>,
}

/// Failure of the last attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct LastFailure {
    /// Number of the attempt.
    pub attempt: i32,
    pub class: Option<String>,
    pub code: Option<String>,
    /// Failure text for people.
    pub summary: Option<String>,
}

/// A model endpoint that an execution waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointStanding {
    /// Name of the provider in the configuration.
    pub provider: String,
    pub model: String,
    /// State of its breaker: `closed`, `open`, `half_open` or `recovering`.
    pub state: String,
    /// Cause of a breaker that is not closed: `outage`, `quota` or `operator`.
    pub cause: Option<String>,
    /// Code of the failure that opened it.
    pub failure_code: Option<String>,
    /// Time of the next probe, while it is open.
    pub until: Option<DateTime<Utc>>,
    /// True if the provider stated that time.
    pub is_stated: bool,
    /// Time at which the execution gives up.
    pub give_up_at: DateTime<Utc>,
    /// Concurrent calls that it takes, as far as the fleet has learned.
    pub concurrency: Option<i32>,
    /// Calls that it takes per second, as far as the fleet has learned.
    pub calls_per_second: Option<f64>,
    /// Calls that it answered per second lately.
    pub served_per_second: Option<f64>,
    /// Executions of its tenant ahead of it, up to [`COUNT_CAP`](super::COUNT_CAP). `None` if it is in no line: it
    /// was released, or has a reserved time.
    pub ahead: Option<i64>,
    /// Other tenants in the line, which take turns, up to [`COUNT_CAP`](super::COUNT_CAP).
    pub other_tenants: Option<i64>,
}

impl EndpointStanding {
    /// Estimates the wait from the calls that the endpoint answers.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        let speed = self.served_per_second.or(self.calls_per_second).filter(|speed| *speed > 0.0)?;
        let turns = (self.ahead? + 1) as f64 * (self.other_tenants? + 1) as f64;
        let basis = format!("{} of {} answers {speed:.1} calls a second", self.model, self.provider);
        Some(Estimate { seconds: Some(turns / speed), basis })
    }
}

/// Estimate of a wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Seconds from now, where recent history permits an estimate.
    pub seconds: Option<f64>,
    /// Basis of the estimate, or the reason why there is none.
    pub basis: String,
}

impl Estimate {
    pub(super) fn none(basis: impl Into<String>) -> Self {
        Self { seconds: None, basis: basis.into() }
    }
}
