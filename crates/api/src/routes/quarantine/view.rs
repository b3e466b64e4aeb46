//! A quarantined execution as the API shows it.

use chrono::{DateTime, Utc};
use longhaul_shared::store::quarantine::{Group, Quarantined};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// What is quarantined together: executions of one tenant with the same definition and agent version.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupView {
    /// `shut` (waits for a worker of a build that it has not killed), `canary` (one is tried) or `releasing` (the rest follows).
    #[schema(example = "shut")]
    state: String,
    /// Builds of workers that it killed.
    died_builds: Vec<String>,
    /// The execution that is tried.
    canary: Option<String>,
    /// Since when new executions of this version are held back.
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
    /// After this it is not released any more.
    deadline_at: DateTime<Utc>,
    /// Whether it is the child of another execution, which was told of its end: only a person releases it.
    is_child: bool,
    /// What it was doing at the last death.
    #[schema(example = "calling render_pdf")]
    phase: String,
    /// The last step of its journal: `seq`, `kind`, `state`, `name`.
    last_step: Option<Value>,
    /// Resident memory of the last worker, as it was last known.
    memory_bytes: Option<i64>,
    /// The deaths since it last made progress, oldest first: `at`, `attempt`, `worker_id`, `host`, `build`, `memory_bytes`.
    deaths: Value,
    /// The retry that released it.
    released_as: Option<String>,
    released_at: Option<DateTime<Utc>>,
    /// Whom it waits with, and for what.
    group: Option<GroupView>,
}

impl From<Quarantined> for QuarantinedView {
    fn from(of: Quarantined) -> Self {
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
            group: of.group.map(GroupView::from),
        }
    }
}

/// The quarantine.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuarantinePage {
    pub(crate) quarantined: Vec<QuarantinedView>,
    /// For the next page, as `?after=`; null on the last one.
    pub(crate) next_after: Option<String>,
}
