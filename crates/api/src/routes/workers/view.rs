//! Workers as the API shows them.

use chrono::{DateTime, Utc};
use longhaul_store::fleet::roster::{ListedWorker, WorkerExecution};
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::closed;

/// A worker process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerView {
    /// Its id, a new one at each start and after each lost lease.
    #[schema(example = "8a6e0804-2bd0-4672-b79d-d97027f9071a")]
    id: String,
    host: String,
    /// Process id on the host.
    pid: i32,
    /// Build of its program.
    build: String,
    /// `draining`: it claims nothing more. `late`: its lease has expired, and it was not declared dead yet.
    #[schema(value_type = closed::WorkerState)]
    state: &'static str,
    queues: Vec<String>,
    /// Executions that it runs at a time at most.
    concurrency: i32,
    /// Executions that it holds, of all tenants.
    held: i64,
    started_at: DateTime<Utc>,
    /// Time since which it claims nothing more.
    draining_since: Option<DateTime<Utc>>,
    /// Time at which it signed off or was declared dead.
    dead_at: Option<DateTime<Utc>>,
    /// Last renewal of its lease; null for a worker of an older release.
    last_heartbeat_at: Option<DateTime<Utc>>,
    /// End of its lease, unless that is renewed.
    lease_expires_at: Option<DateTime<Utc>>,
    /// Start of its renewals without a gap.
    steady_since: Option<DateTime<Utc>>,
    /// Resident memory at the last renewal.
    memory_bytes: Option<i64>,
}

impl From<ListedWorker> for WorkerView {
    fn from(of: ListedWorker) -> Self {
        Self {
            id: of.id.to_string(),
            host: of.host,
            pid: of.pid,
            build: of.build,
            state: of.state.as_str(),
            queues: of.queues,
            concurrency: of.concurrency,
            held: of.held,
            started_at: of.started_at,
            draining_since: of.draining_since,
            dead_at: of.dead_at,
            last_heartbeat_at: of.renewed_at,
            lease_expires_at: of.expires_at,
            steady_since: of.steady_since,
            memory_bytes: of.memory_bytes,
        }
    }
}

/// Workers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerPage {
    pub(super) workers: Vec<WorkerView>,
    /// Value of `after` for the next page; null at the end.
    pub(super) next_after: Option<String>,
}

/// An execution that a worker holds, or held when it was declared dead.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerExecutionView {
    execution_id: String,
    org_id: String,
    group_id: Option<String>,
    definition: String,
    agent: String,
    queue: String,
    attempt: i32,
    /// Start of the attempt.
    since: DateTime<Utc>,
    /// Time at which its worker was declared dead; null while it is held.
    lost_at: Option<DateTime<Utc>>,
}

impl From<WorkerExecution> for WorkerExecutionView {
    fn from(of: WorkerExecution) -> Self {
        Self {
            execution_id: of.id.to_string(),
            org_id: of.org_id,
            group_id: of.group_id,
            definition: of.definition_key,
            agent: of.agent_key,
            queue: of.queue,
            attempt: of.attempt,
            since: of.since,
            lost_at: of.lost_at,
        }
    }
}

/// A worker and what it runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerDetail {
    #[serde(flatten)]
    worker: WorkerView,
    /// Executions that it holds.
    executions: Vec<WorkerExecutionView>,
    /// Value of `after` for the next page of `executions`; null at the end.
    next_after: Option<String>,
    /// Executions that it held when it was declared dead, newest first.
    lost: Vec<WorkerExecutionView>,
}

impl WorkerDetail {
    pub(super) fn new(
        worker: ListedWorker,
        held: Vec<WorkerExecution>,
        lost: Vec<WorkerExecution>,
        next_after: Option<String>,
    ) -> Self {
        let views = |of: Vec<WorkerExecution>| of.into_iter().map(WorkerExecutionView::from).collect();
        Self { worker: worker.into(), executions: views(held), next_after, lost: views(lost) }
    }
}
