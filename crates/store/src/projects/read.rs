//! Projects, their plans and tasks as they stand.

use chrono::{DateTime, Utc};
use longhaul_domain::{
    ExecutionId, ExecutionStrategy, ProjectId, ProjectStatus, TaskStatus, TenantId,
    project::{Plan, PlannedPhase, PlannedTask},
};
use serde_json::Value;
use sqlx::PgConnection;

use super::locked::snapshot;
use crate::{Store, StoreError, database::plans::begin_list, tenants::scope::TenantScope};

/// A project.
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub name: String,
    pub goal: String,
    pub agent_key: String,
    pub execution_strategy: ExecutionStrategy,
    pub max_parallel_tasks: i32,
    pub needs_approval: bool,
    pub metadata: Value,
    pub status: ProjectStatus,
    /// `request` or `gate`, while it is paused.
    pub pause_reason: Option<String>,
    /// Name of the phase that runs; `None` without a plan.
    pub phase: Option<String>,
    pub plan_version: i32,
    /// Execution that made the plan.
    pub planner: Option<ExecutionId>,
    pub failure_code: Option<String>,
    pub failure_summary: Option<String>,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub deadline_at: Option<DateTime<Utc>>,
    /// Tasks by status, in the order of [`TaskStatus::ALL`].
    counts: Vec<i32>,
}

impl Project {
    /// Numbers of its tasks by status.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskStatus, i32)> {
        TaskStatus::ALL.iter().copied().zip(self.counts.iter().copied())
    }
}

/// A task of a project.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectTask {
    pub planned: PlannedTask,
    /// Place in the plan, from 0.
    pub position: i32,
    pub status: TaskStatus,
    /// Its last execution.
    pub execution: Option<ExecutionId>,
    pub attempts: i32,
    /// Tasks that it depends on and that have not completed.
    pub remaining_deps: i32,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub failure_code: Option<String>,
}

/// A task as an edit sees it.
#[derive(Debug)]
pub(super) struct StoredTask {
    pub(super) planned: PlannedTask,
    pub(super) status: TaskStatus,
}

/// The plan of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPlan {
    /// 0 without a plan.
    pub version: i32,
    pub plan: Plan,
}

/// An event of a project.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectEvent {
    /// Number, counted from 1 per project.
    pub seq: i32,
    pub at: DateTime<Utc>,
    pub kind: String,
    pub data: Value,
}

struct TaskRow {
    key: String,
    position: i32,
    phase_name: String,
    title: String,
    prompt: String,
    agent_key: Option<String>,
    depends_on: Vec<String>,
    retries: i32,
    timeout_seconds: Option<i32>,
    status: TaskStatus,
    execution_id: Option<ExecutionId>,
    attempts: i32,
    remaining_deps: i32,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    failure_code: Option<String>,
}

impl From<TaskRow> for ProjectTask {
    fn from(row: TaskRow) -> Self {
        Self {
            planned: PlannedTask {
                key: row.key,
                title: row.title,
                prompt: row.prompt,
                agent: row.agent_key,
                depends_on: row.depends_on,
                phase: Some(row.phase_name),
                retries: u8::try_from(row.retries).unwrap_or(u8::MAX),
                timeout_seconds: row.timeout_seconds.map(i32::unsigned_abs),
            },
            position: row.position,
            status: row.status,
            execution: row.execution_id,
            attempts: row.attempts,
            remaining_deps: row.remaining_deps,
            started_at: row.started_at,
            finished_at: row.finished_at,
            failure_code: row.failure_code,
        }
    }
}

async fn task_rows(
    connection: &mut PgConnection,
    project: ProjectId,
    key: Option<&str>,
    (after, limit): (i32, i64),
) -> Result<Vec<ProjectTask>, StoreError> {
    let rows = sqlx::query_as!(
        TaskRow,
        r#"
        select t.key, t.position, p.name as phase_name, t.title, t.prompt, t.agent_key, t.depends_on, t.retries,
            t.timeout_seconds, t.status as "status: _", t.execution_id as "execution_id: _", t.attempts,
            t.remaining_deps,
            t.started_at, t.finished_at, t.failure_code
        from project_tasks t join project_phases p on p.project_id = t.project_id and p.position = t.phase
        where t.project_id = $1 and ($2::text is null or t.key = $2) and t.position > $3
        order by t.position limit $4
        "#,
        project.0,
        key,
        after,
        limit,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(ProjectTask::from).collect())
}

/// Phases of a project in order. A gate that was passed is none any more.
pub(super) async fn stored_phases(
    connection: &mut PgConnection,
    project: ProjectId,
) -> Result<Vec<PlannedPhase>, StoreError> {
    let phases = sqlx::query!(
        "select name, has_gate, execution_strategy from project_phases where project_id = $1 order by position",
        project.0,
    )
    .fetch_all(connection)
    .await?;
    let phase = phases.into_iter().map(|row| PlannedPhase {
        name: row.name,
        gate: row.has_gate,
        execution_strategy: row.execution_strategy.as_deref().and_then(ExecutionStrategy::parse),
    });
    Ok(phase.collect())
}

/// All tasks of a project in order, for an edit.
pub(super) async fn stored_tasks(
    connection: &mut PgConnection,
    project: ProjectId,
) -> Result<Vec<StoredTask>, StoreError> {
    let tasks = task_rows(connection, project, None, (-1, i64::MAX)).await?;
    Ok(tasks.into_iter().map(|task| StoredTask { planned: task.planned, status: task.status }).collect())
}

impl Store {
    /// A project that the scope sees.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn get_project(&self, scope: &TenantScope, id: ProjectId) -> Result<Option<Project>, StoreError> {
        Ok(self.projects(scope, (Some(id), None), None, 1).await?.pop())
    }

    /// Projects that the scope sees, newest first, those of one status if it is given.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_projects(
        &self,
        scope: &TenantScope,
        status: Option<ProjectStatus>,
        before: Option<ProjectId>,
        limit: i64,
    ) -> Result<Vec<Project>, StoreError> {
        self.projects(scope, (None, status), before, limit).await
    }

    async fn projects(
        &self,
        scope: &TenantScope,
        (id, status): (Option<ProjectId>, Option<ProjectStatus>),
        before: Option<ProjectId>,
        limit: i64,
    ) -> Result<Vec<Project>, StoreError> {
        let tenants = scope.ids();
        let query = sqlx::query_as!(
            Project,
            r#"
            select p.id, p.tenant_id, p.name, p.goal, p.agent_key, p.execution_strategy as "execution_strategy: _",
                p.max_parallel_tasks, p.needs_approval, p.metadata, p.status as "status: _", p.pause_reason,
                p.plan_version, p.planner_id as "planner: _", p.failure_code,
                p.failure_summary, p.created_at, p.started_at, p.finished_at, p.deadline_at,
                (select f.name from project_phases f where f.project_id = p.id and f.position = p.phase) as phase,
                array[p.pending, p.running, p.completed, p.failed, p.skipped, p.cancelled] as "counts!"
            from (select id as tenant_id from tenants where $1::uuid[] is null or id = any ($1)) t
            cross join lateral (
                select * from projects p
                where p.tenant_id = t.tenant_id and ($2::uuid is null or p.id = $2)
                    and ($3::text is null or p.status = $3) and ($4::uuid is null or p.id < $4)
                order by p.id desc
                limit $5
            ) p
            order by p.id desc
            limit $5
            "#,
            tenants.as_deref(),
            id.map(|id| id.0),
            status.map(ProjectStatus::as_str),
            before.map(|id| id.0),
            limit,
        );
        Ok(match id {
            Some(_) => query.fetch_all(&self.pool).await?,
            None => query.fetch_all(&mut *begin_list(&self.pool).await?).await?,
        })
    }

    /// Tasks of a project in the order of its plan, after a position.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_tasks(&self, id: ProjectId, after: i32, limit: i64) -> Result<Vec<ProjectTask>, StoreError> {
        task_rows(&mut *self.pool.acquire().await?, id, None, (after, limit)).await
    }

    /// A task of a project.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn get_task(&self, id: ProjectId, key: &str) -> Result<Option<ProjectTask>, StoreError> {
        Ok(task_rows(&mut *self.pool.acquire().await?, id, Some(key), (-1, 1)).await?.pop())
    }

    /// The plan of a project. `None` if there is no such project.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn get_plan(&self, id: ProjectId) -> Result<Option<StoredPlan>, StoreError> {
        let mut transaction = snapshot(&self.pool).await?;
        let version = sqlx::query_scalar!("select plan_version from projects where id = $1", id.0)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(version) = version else { return Ok(None) };
        let plan = Plan {
            phases: stored_phases(&mut transaction, id).await?,
            tasks: stored_tasks(&mut transaction, id).await?.into_iter().map(|task| task.planned).collect(),
        };
        Ok(Some(StoredPlan { version, plan }))
    }

    /// Events of a project after a number.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn project_events(&self, id: ProjectId, after: i32, limit: i64) -> Result<Vec<ProjectEvent>, StoreError> {
        let events = sqlx::query_as!(
            ProjectEvent,
            "select seq, at, kind, data from project_events where project_id = $1 and seq > $2 order by seq limit $3",
            id.0,
            after,
            limit,
        );
        Ok(events.fetch_all(&self.pool).await?)
    }
}
