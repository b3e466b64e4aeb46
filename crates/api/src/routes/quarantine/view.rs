//! A quarantined execution as the API shows it.

use chrono::{DateTime, Utc};
use longhaul_store::quarantine::{Group, Quarantined};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::openapi::closed;

/// A quarantine group: executions of one tenant with the same definition and agent version.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupView {
    /// `shut` (waits for a worker of a build that the group has not killed), `canary` (one execution is tried) or
    /// `releasing` (the rest follows).
    #[schema(value_type = closed::GroupState)]
    state: String,
    /// Builds of workers that the group killed.
    died_builds: Vec<String>,
    /// Execution that is tried as the canary.
    canary: Option<String>,
    /// Time since which new executions of this version are held back.
    held_since: Option<DateTime<Utc>>,
}

impl From<Group> for GroupView {
    fn from(of: Group) -> Self {
        Self {
            state: of.state,
            died_builds: of.died_builds,
            canary: of.canary.map(|id| id.to_string()),
            held_since: of.held_since,
        }
    }
}

/// An execution that killed its workers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuarantinedView {
    execution_id: String,
    definition: String,
    definition_version: Option<i32>,
    agent: String,
    queue: String,
    /// `quarantined`, `released`, `withdrawn` (cancelled by its caller) or `expired` (its deadline passed).
    state: String,
    quarantined_at: DateTime<Utc>,
    /// Time after which it cannot be released.
    deadline_at: DateTime<Utc>,
    /// True if it is a child whose parent was told of its end: only a person can release it.
    is_child: bool,
    /// Activity at the last death.
    #[schema(example = "calling render_pdf")]
    phase: String,
    /// Last step of its journal: `seq`, `kind`, `state`, `name`.
    #[schema(value_type = Option<Object>)]
    last_step: Option<Value>,
    /// Resident memory of the last worker in bytes, as last known.
    memory_bytes: Option<i64>,
    /// Worker deaths since its last progress, oldest first: `at`, `attempt`, `worker_id`, `host`, `build`,
    /// `memory_bytes`.
    #[schema(value_type = Vec<Object>)]
    deaths: Value,
    /// Retry that released it.
    released_as: Option<String>,
    released_at: Option<DateTime<Utc>>,
    /// Group that it is quarantined with.
    group: Option<GroupView>,
}

impl From<Quarantined> for QuarantinedView {
    fn from(of: Quarantined) -> Self {
        let group = of.group().map(GroupView::from);
        Self {
            execution_id: of.id.to_string(),
            definition: of.definition_key,
            definition_version: of.definition_version,
            agent: of.agent_key,
            queue: of.queue,
            state: of.state,
            quarantined_at: of.quarantined_at,
            deadline_at: of.deadline_at,
            is_child: of.is_child,
            phase: of.phase,
            last_step: of.last_step,
            memory_bytes: of.memory_bytes,
            deaths: of.deaths,
            released_as: of.released_as.map(|id| id.to_string()),
            released_at: of.released_at,
            group,
        }
    }
}

/// A page of quarantined executions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuarantinePage {
    pub(crate) quarantined: Vec<QuarantinedView>,
    /// Value of `?after=` for the next page; null on the last one.
    pub(crate) next_after: Option<String>,
}
