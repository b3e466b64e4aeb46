//! What is told of a wait.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    domain::{ExecutionId, ExecutionStatus, LimitKey, WaitReason, WorkerId},
    store::quarantine::Holding,
};

/// Where an execution stands, with everything that explains it.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Its status.
    pub status: ExecutionStatus,
    /// What it waits for; absent while a worker holds it and when it is over.
    pub reason: Option<WaitReason>,
    /// Since when it stands where it stands.
    pub since: DateTime<Utc>,
    /// When the wait ends at the latest.
    pub until: Option<DateTime<Utc>>,
    /// When it must have ended.
    pub deadline_at: DateTime<Utc>,
    /// Why it failed.
    pub failure_code: Option<String>,
    /// Who holds it.
    pub worker: Option<WorkerId>,
    /// The tool servers that its worker starts for it, where they take their time.
    pub starting: Vec<String>,
    /// Its queue.
    pub queue: String,
    /// Its definition.
    pub definition_key: String,
    /// In which version.
    pub definition_version: Option<i32>,
    /// Its place, when it waits for a worker or for a slot.
    pub place: Option<PlaceInLine>,
    /// Who could run it.
    pub workers: Option<LiveWorkers>,
    /// What a worker must have to run it, beyond what every worker has.
    pub requirements: Vec<String>,
    /// The limits it needs slots of.
    pub limits: Vec<LimitStanding>,
    /// What people are asked.
    pub requests: Vec<OpenRequest>,
    /// How many executions it started are open, and some of them.
    pub open_children: i32,
    /// Some of those.
    pub children: Vec<OpenChild>,
    /// Why its last attempt ended.
    pub last_failure: Option<LastFailure>,
    /// The model endpoint it waits for.
    pub endpoint: Option<EndpointStanding>,
    /// Why new executions like it are held back.
    pub holding: Option<Holding>,
    /// How long it may take from here.
    pub estimate: Estimate,
}

/// A place in a line. Counts stop at [`COUNT_CAP`](super::COUNT_CAP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceInLine {
    /// Executions of its own tenant before it.
    pub ahead: i64,
    /// Other tenants that wait in the same line and share it.
    pub other_tenants: i64,
}

/// The live workers that serve an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveWorkers {
    /// How many.
    pub count: i64,
    /// What they run at most.
    pub permits: i64,
    /// What of that is free at least: an execution whose end is being written counts as running, because the rows do not tell.
    pub free: i64,
}

/// A limit that an execution needs a slot of.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitStanding {
    /// `definition`, `agent` or `operator`.
    pub source: String,
    /// The definition or agent that has it.
    pub subject: Option<String>,
    /// What executions are grouped by.
    pub key: LimitKey,
    /// How many may run.
    pub max: i32,
    /// How many do.
    pub held: i64,
    /// Those of its own tenant, some of them.
    pub holders: Vec<ExecutionId>,
    /// How many others do.
    pub held_by_others: i64,
    /// Whether it stands in this line.
    pub is_waited_for: bool,
}

/// A request to a person.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenRequest {
    /// Its id.
    pub id: Uuid,
    /// `approval` or `question`.
    pub kind: String,
    /// The tool that would run.
    pub tool: String,
    /// When nobody's word counts as a no.
    pub expires_at: DateTime<Utc>,
}

/// An open child.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenChild {
    /// Its id.
    pub id: ExecutionId,
    /// Its status.
    pub status: String,
    /// What it waits for itself.
    pub wait_reason: Option<String>,
}

/// Why the last attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LastFailure {
    /// Its number.
    pub attempt: i32,
    /// Its class.
    pub class: Option<String>,
    /// Its code.
    pub code: Option<String>,
    /// For people.
    pub summary: Option<String>,
}

/// A model endpoint that an execution waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointStanding {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Of its breaker: `closed`, `open`, `half_open` or `recovering`.
    pub state: String,
    /// Why it is not closed: `outage`, `quota` or `operator`.
    pub cause: Option<String>,
    /// While it is open: when it is asked again.
    pub until: Option<DateTime<Utc>>,
    /// The provider itself said so.
    pub is_stated: bool,
    /// When the execution waits no longer.
    pub give_up_at: DateTime<Utc>,
    /// Executions before it, of all tenants, up to [`COUNT_CAP`](super::COUNT_CAP). `None` when it stands in no line: it was let go, or
    /// has a time of its own.
    pub ahead: Option<i64>,
}

/// How long a wait may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Seconds from now, where recent history allows to say.
    pub seconds: Option<f64>,
    /// From what, or why not.
    pub basis: String,
}

impl Estimate {
    pub(super) fn none(basis: impl Into<String>) -> Self {
        Self { seconds: None, basis: basis.into() }
    }
}
