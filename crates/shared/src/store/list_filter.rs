//! Which executions a list asks for, and which index reads them.

use chrono::{DateTime, Duration, Utc};
use serde_json::Value;
use uuid::Uuid;

use crate::domain::{ExecutionId, ExecutionStatus, WaitReason};

/// Ids are minted before the row is inserted; a submit waits out an outage at most this long in between.
const MINTED_BEFORE: Duration = Duration::minutes(5);
/// Ids are minted from the database's clock as last measured; it is not further off than this.
const MINTED_AFTER: Duration = Duration::seconds(10);

/// Which executions to list. Absent filters let everything through.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListFilter {
    /// Where they stand.
    pub status: Option<ExecutionStatus>,
    /// What they wait for.
    pub wait_reason: Option<WaitReason>,
    /// By agent.
    pub agent: Option<String>,
    /// By definition.
    pub definition: Option<String>,
    /// By cause of failure.
    pub failure_code: Option<String>,
    /// By queue.
    pub queue: Option<String>,
    /// An object all of whose fields their metadata have.
    pub metadata: Option<Value>,
    /// Started by this execution.
    pub parent: Option<ExecutionId>,
    /// Of the tree below this execution, itself included.
    pub root: Option<ExecutionId>,
    /// Submitted at this time or later.
    pub created_after: Option<DateTime<Utc>>,
    /// Submitted before this time.
    pub created_before: Option<DateTime<Utc>>,
    /// Older than this one: the last one of the page before.
    pub before: Option<ExecutionId>,
    /// The most rows.
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
    /// `executions_tenant`.
    Tenant,
}

impl ListFilter {
    /// The path that reads the fewest rows beside those asked for.
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
        } else {
            AccessPath::Tenant
        }
    }

    /// Ids `low..high` hold every execution of the filter's times and cursor. Times are then checked exactly.
    pub(super) fn id_range(&self) -> (Uuid, Uuid) {
        let low = self.created_after.map_or(Uuid::nil(), |at| uuid_floor(at - MINTED_BEFORE));
        let high = self.created_before.map_or(Uuid::max(), |at| uuid_floor(at + MINTED_AFTER));
        (low, self.before.map_or(high, |before| high.min(before.0)))
    }
}

/// The smallest UUIDv7 of an instant, as `longhaul_uuid_floor` in SQL.
#[must_use]
pub fn uuid_floor(at: DateTime<Utc>) -> Uuid {
    let millis = u64::try_from(at.timestamp_millis()).unwrap_or_default();
    Uuid::from_u128((u128::from(millis) << 80) | 0x7000_8000_0000_0000_0000)
}

/// What [`Store::explain_list`](super::Store::explain_list) asks Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explain {
    /// The plan alone.
    Plan,
    /// The plan as carried out, with rows, times and buffers.
    Analyze,
}
