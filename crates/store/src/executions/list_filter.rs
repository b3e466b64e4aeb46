//! Filter of a list of executions, and the index that reads the list.

use chrono::{DateTime, Duration, Utc};
use serde_json::Value;
use uuid::Uuid;

use longhaul_domain::{ExecutionId, ExecutionStatus, WaitReason};

/// Longest time between minting an id and inserting its row: a submit waits out an outage that long.
const MINTED_BEFORE: Duration = Duration::minutes(5);
/// Largest error of the database's clock as last measured, from which ids are minted.
const MINTED_AFTER: Duration = Duration::seconds(10);
/// Most executions of a tenant that one list examines along its index, however few of them pass the other conditions.
pub const MAX_EXAMINED: i64 = 5_000;

/// Filter of a list of executions. Absent fields let everything through.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListFilter {
    pub status: Option<ExecutionStatus>,
    pub wait_reason: Option<WaitReason>,
    pub agent: Option<String>,
    pub definition: Option<String>,
    pub failure_code: Option<String>,
    pub queue: Option<String>,
    /// Object whose fields the metadata must have.
    pub metadata: Option<Value>,
    /// Only children of this execution.
    pub parent: Option<ExecutionId>,
    /// Only the tree below this execution, itself included.
    pub root: Option<ExecutionId>,
    /// Submitted at this time or later.
    pub created_after: Option<DateTime<Utc>>,
    /// Submitted before this time.
    pub created_before: Option<DateTime<Utc>>,
    /// Only executions older than this one, the last of the previous page.
    pub before: Option<ExecutionId>,
    /// Most rows.
    pub limit: i64,
}

/// The index that a list scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessPath {
    /// `executions_children`.
    Children,
    /// `executions_tree`, and the root by its id.
    Tree,
    /// `executions_metadata`, the GIN index.
    Metadata,
    /// `parked_reason`.
    Parked,
    /// `executions_open`.
    Open,
    /// `executions_failed`, one scan per failure code.
    Failed,
    /// `executions_definition`.
    Definition,
    /// `executions_agent`.
    Agent,
    /// `executions_queue`.
    Queue,
    /// `executions_tenant`.
    Tenant,
}

impl ListFilter {
    /// The path that reads the fewest rows besides those asked for.
    #[must_use]
    pub fn access_path(&self) -> AccessPath {
        let is_open = matches!(self.status, Some(ExecutionStatus::Pending | ExecutionStatus::InProgress));
        if self.parent.is_some() {
            return AccessPath::Children;
        }
        if self.root.is_some() {
            return AccessPath::Tree;
        }
        match self.wait_reason {
            Some(WaitReason::Worker) => return AccessPath::Open,
            Some(_) => return AccessPath::Parked,
            None => {}
        }
        if self.metadata.is_some() {
            AccessPath::Metadata
        } else if is_open {
            AccessPath::Open
        } else if self.failure_code.is_some() || self.status == Some(ExecutionStatus::Failed) {
            AccessPath::Failed
        } else if self.definition.is_some() {
            AccessPath::Definition
        } else if self.agent.is_some() {
            AccessPath::Agent
        } else if self.queue.is_some() {
            AccessPath::Queue
        } else {
            AccessPath::Tenant
        }
    }

    /// The conditions that the index of its path answers; those of `Open` and `Failed` in part by the path itself.
    pub(crate) fn along_path(&self) -> Self {
        let own = self.clone();
        let none = Self { limit: self.limit, ..Self::default() };
        match self.access_path() {
            AccessPath::Children => Self { parent: own.parent, ..none },
            AccessPath::Tree => Self { root: own.root, ..none },
            AccessPath::Metadata => Self { metadata: own.metadata, ..none },
            AccessPath::Parked => Self { wait_reason: own.wait_reason, ..none },
            AccessPath::Open => Self { status: own.status, ..none },
            AccessPath::Failed => Self { failure_code: own.failure_code, ..none },
            AccessPath::Definition => Self { definition: own.definition, ..none },
            AccessPath::Agent => Self { agent: own.agent, ..none },
            AccessPath::Queue => Self { queue: own.queue, ..none },
            AccessPath::Tenant => none,
        }
    }

    /// True if executions that the index finds may fail other conditions.
    pub(crate) fn is_partial(&self) -> bool {
        Self { before: None, ..self.clone() } != self.along_path()
    }

    /// Range of ids `low..high` that holds every execution of the filter's times and cursor. Times are then
    /// checked exactly.
    pub(crate) fn id_range(&self) -> (Uuid, Uuid) {
        let low = self.created_after.map_or(Uuid::nil(), |at| uuid_floor(at - MINTED_BEFORE));
        let high = self.created_before.map_or(Uuid::max(), |at| uuid_floor(at + MINTED_AFTER));
        (low, self.before.map_or(high, |before| high.min(before.0)))
    }
}

/// Smallest UUIDv7 of an instant, as `longhaul_uuid_floor` in SQL.
#[must_use]
pub fn uuid_floor(at: DateTime<Utc>) -> Uuid {
    let millis = u64::try_from(at.timestamp_millis()).unwrap_or_default();
    Uuid::from_u128((u128::from(millis) << 80) | 0x7000_8000_0000_0000_0000)
}

/// Kind of plan for [`Store::explain_list`](crate::Store::explain_list).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explain {
    /// The plan alone.
    Plan,
    /// The plan as carried out, with rows, times and buffers.
    Analyze,
}
