//! A project's row under its lock, the changes that a transaction makes to it, and its events.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionStrategy, ProjectId, ProjectStatus, TaskStatus, TenantId};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::{
    StoreError,
    database::plans::{Plans, plan_along_indexes},
};

/// A locked project. [`Self::save`] writes it back.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) id: ProjectId,
    pub(super) tenant: TenantId,
    pub(super) agent_key: String,
    strategy: ExecutionStrategy,
    max_parallel_tasks: i32,
    needs_approval: bool,
    /// True if its executions spend a budget of its own.
    pub(super) has_budget: bool,
    pub(super) queue: String,
    pub(super) submitted_by: Option<Uuid>,
    pub(super) deadline_at: Option<DateTime<Utc>>,
    pub(super) status: ProjectStatus,
    pub(super) pause_reason: Option<String>,
    pub(super) planner: Option<Uuid>,
    pub(super) plan_version: i32,
    pub(super) phase: i32,
    pub(super) counts: Counts,
    failure: Option<(&'static str, String)>,
    /// The database's time at the beginning of the transaction, or that of the last end that it records.
    pub(super) now: DateTime<Utc>,
    event_seq: i32,
    events: Vec<(&'static str, Value)>,
    before: ProjectStatus,
}

/// Tasks by status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) pending: i32,
    pub(super) running: i32,
    pub(super) completed: i32,
    pub(super) failed: i32,
    pub(super) skipped: i32,
    pub(super) cancelled: i32,
}

impl Counts {
    fn of(&mut self, status: TaskStatus) -> &mut i32 {
        match status {
            TaskStatus::Pending => &mut self.pending,
            TaskStatus::Running => &mut self.running,
            TaskStatus::Completed => &mut self.completed,
            TaskStatus::Failed => &mut self.failed,
            TaskStatus::Skipped => &mut self.skipped,
            TaskStatus::Cancelled => &mut self.cancelled,
        }
    }

    pub(super) fn total(&self) -> i32 {
        self.pending + self.running + self.completed + self.failed + self.skipped + self.cancelled
    }

    pub(super) fn add(&mut self, status: TaskStatus) {
        *self.of(status) += 1;
    }

    /// Moves `n` tasks from one status to another.
    pub(super) fn shift(&mut self, from: TaskStatus, to: TaskStatus, n: usize) {
        let n = i32::try_from(n).unwrap_or(i32::MAX);
        *self.of(from) -= n;
        *self.of(to) += n;
    }
}

/// Begins a transaction whose statements find their rows by index: their plans are kept, and may be made while a
/// project has few tasks (docs/design/storage.md).
pub(super) async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    let mut transaction = pool.begin().await?;
    plan_along_indexes(&mut transaction, Plans::Generic).await?;
    Ok(transaction)
}

/// Begins a transaction whose reads have one snapshot: an edit replaces phases and tasks together.
pub(super) async fn snapshot(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    let mut transaction = pool.begin().await?;
    sqlx::query!("set transaction isolation level repeatable read, read only").execute(&mut *transaction).await?;
    Ok(transaction)
}

impl Locked {
    /// Locks a project of `tenant`, of any tenant without one. `None` if there is none.
    pub(super) async fn wait_for(
        connection: &mut PgConnection,
        id: ProjectId,
        tenant: Option<TenantId>,
    ) -> Result<Option<Self>, StoreError> {
        let found = sqlx::query_scalar!(
            "select id from projects where id = $1 and ($2::uuid is null or tenant_id = $2) for no key update",
            id.0,
            tenant.map(|tenant| tenant.0),
        )
        .fetch_optional(&mut *connection)
        .await?;
        match found {
            Some(_) => Self::read(connection, id).await.map(Some),
            None => Ok(None),
        }
    }

    /// Locks a project that no other transaction has locked.
    pub(super) async fn try_lock(connection: &mut PgConnection, id: ProjectId) -> Result<Option<Self>, StoreError> {
        let found = sqlx::query_scalar!("select id from projects where id = $1 for no key update skip locked", id.0)
            .fetch_optional(&mut *connection)
            .await?;
        match found {
            Some(_) => Self::read(connection, id).await.map(Some),
            None => Ok(None),
        }
    }

    /// A statement of its own: the snapshot of the one that waited for the lock is older.
    async fn read(connection: &mut PgConnection, id: ProjectId) -> Result<Self, StoreError> {
        let row = sqlx::query!(
            r#"
            select tenant_id, agent_key, execution_strategy as "execution_strategy: ExecutionStrategy",
                max_parallel_tasks, needs_approval, queue, submitted_by, deadline_at, status as "status: ProjectStatus",
                pause_reason, planner_id, plan_version, phase, pending, running, completed, failed,
                skipped, cancelled, event_seq, longhaul_now() as "now!",
                exists (select from budgets b where b.root_id = p.id) as "has_budget!"
            from projects p where p.id = $1
            "#,
            id.0
        )
        .fetch_one(connection)
        .await?;
        Ok(Self {
            id,
            tenant: TenantId(row.tenant_id),
            agent_key: row.agent_key,
            strategy: row.execution_strategy,
            max_parallel_tasks: row.max_parallel_tasks,
            needs_approval: row.needs_approval,
            has_budget: row.has_budget,
            queue: row.queue,
            submitted_by: row.submitted_by,
            deadline_at: row.deadline_at,
            status: row.status,
            pause_reason: row.pause_reason,
            planner: row.planner_id,
            plan_version: row.plan_version,
            phase: row.phase,
            counts: Counts {
                pending: row.pending,
                running: row.running,
                completed: row.completed,
                failed: row.failed,
                skipped: row.skipped,
                cancelled: row.cancelled,
            },
            failure: None,
            now: row.now,
            event_seq: row.event_seq,
            events: Vec::new(),
            before: row.status,
        })
    }

    /// Most tasks that run at a time in a phase with this strategy, if it has one of its own.
    pub(super) fn cap(&self, of_phase: Option<&str>) -> i32 {
        let of_phase = of_phase.and_then(ExecutionStrategy::parse);
        of_phase.unwrap_or(self.strategy).cap(self.max_parallel_tasks)
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.deadline_at.is_some_and(|at| at <= self.now)
    }

    /// True if this transaction freed a place among the running projects, or put this one in line for one.
    pub(super) fn moves_the_line(&self) -> bool {
        self.before != self.status
            && (self.before == ProjectStatus::InProgress || self.status == ProjectStatus::Approved)
    }

    /// True if a person approved the plan.
    pub(super) fn was_approved(&self) -> bool {
        let waits = matches!(self.status, ProjectStatus::Pending | ProjectStatus::AwaitingApproval);
        self.needs_approval && !waits
    }

    pub(super) fn note(&mut self, kind: &'static str, data: Value) {
        self.events.push((kind, data));
    }

    pub(super) fn note_task(&mut self, kind: &'static str, key: &str) {
        self.note(kind, json!({ "task": key }));
    }

    pub(super) fn pause(&mut self, reason: &'static str) {
        self.status = ProjectStatus::Paused;
        self.pause_reason = Some(reason.to_owned());
        self.note("paused", json!({ "reason": reason }));
    }

    /// Puts it in line to run, or before a person who approves the plan.
    pub(super) fn take_plan(&mut self) {
        self.plan_version += 1;
        self.note("planned", json!({ "version": self.plan_version }));
        self.status = if self.needs_approval { ProjectStatus::AwaitingApproval } else { ProjectStatus::Approved };
    }

    pub(super) fn end(&mut self, status: ProjectStatus, failure: Option<(&'static str, String)>) {
        self.status = status;
        let code = failure.as_ref().map(|(code, _)| *code);
        self.failure = failure;
        self.note(status.as_str(), code.map_or_else(|| json!({}), |code| json!({ "failure_code": code })));
    }

    /// Writes the changes and the events.
    pub(super) async fn save(self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let state = StateRow::from(&self);
        let (kinds, data): (Vec<String>, Vec<Value>) =
            self.events.into_iter().map(|(kind, data)| (kind.to_owned(), data)).unzip();
        sqlx::query_file!("src/sql/save_project.sql", state as _, &kinds, &data as &[Value])
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// A row of the type `project_state`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "project_state")]
struct StateRow {
    id: Uuid,
    status: String,
    pause_reason: Option<String>,
    is_end: bool,
    failure_code: Option<String>,
    failure_summary: Option<String>,
    plan_version: i32,
    phase: i32,
    pending: i32,
    running: i32,
    completed: i32,
    failed: i32,
    skipped: i32,
    cancelled: i32,
    event_seq: i32,
    at: DateTime<Utc>,
}

impl From<&Locked> for StateRow {
    fn from(of: &Locked) -> Self {
        let (failure_code, failure_summary) =
            of.failure.as_ref().map(|(code, summary)| ((*code).to_owned(), summary.clone())).unzip();
        Self {
            id: of.id.0,
            status: of.status.as_str().to_owned(),
            pause_reason: of.pause_reason.clone().filter(|_| of.status == ProjectStatus::Paused),
            is_end: of.status.is_terminal(),
            failure_code,
            failure_summary,
            plan_version: of.plan_version,
            phase: of.phase,
            pending: of.counts.pending,
            running: of.counts.running,
            completed: of.counts.completed,
            failed: of.counts.failed,
            skipped: of.counts.skipped,
            cancelled: of.counts.cancelled,
            event_seq: of.event_seq,
            at: of.now,
        }
    }
}
