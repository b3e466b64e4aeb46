//! Decisions of people on a project: approve, pause, resume, go on after a gate, cancel.

use longhaul_domain::{ExecutionId, ProjectId, ProjectStatus, TenantId};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    ends::cancel_pending,
    locked::{Locked, begin},
};
use crate::{Store, StoreError};

/// Summary of executions that are cancelled with their project.
const CANCELLED: &str = "cancelled with its project";

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// It is done; these executions were told to stop.
    Done(Vec<ExecutionId>),
    /// The project is in a state without this change.
    Refused(ProjectStatus),
    /// The plan has another number than the caller has seen.
    Stale(i32),
    NotFound,
}

/// Treatment of the tasks that run when a project is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunningTasks {
    Finish,
    Cancel,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    /// The plan of this number; any without one.
    Approve(Option<i32>),
    Pause,
    Resume,
    Continue,
    Cancel(RunningTasks),
}

impl Store {
    /// Lets a plan that waits for approval run, if it has the number that the caller has `seen`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn approve_project(
        &self,
        tenant: TenantId,
        id: ProjectId,
        seen: Option<i32>,
    ) -> Result<Changed, StoreError> {
        self.change_project(tenant, id, Change::Approve(seen)).await
    }

    /// Starts no more tasks; those that run finish. Its place goes to the next project.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn pause_project(&self, tenant: TenantId, id: ProjectId) -> Result<Changed, StoreError> {
        self.change_project(tenant, id, Change::Pause).await
    }

    /// Puts a project that was paused by request in line again.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn resume_project(&self, tenant: TenantId, id: ProjectId) -> Result<Changed, StoreError> {
        self.change_project(tenant, id, Change::Resume).await
    }

    /// Puts a project that waits at the gate of a phase in line again.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn continue_project(&self, tenant: TenantId, id: ProjectId) -> Result<Changed, StoreError> {
        self.change_project(tenant, id, Change::Continue).await
    }

    /// Starts no more tasks, for good.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn cancel_project(
        &self,
        tenant: TenantId,
        id: ProjectId,
        running: RunningTasks,
    ) -> Result<Changed, StoreError> {
        self.change_project(tenant, id, Change::Cancel(running)).await
    }

    async fn change_project(&self, tenant: TenantId, id: ProjectId, change: Change) -> Result<Changed, StoreError> {
        let mut transaction = begin(&self.pool).await?;
        let Some(mut project) = Locked::wait_for(&mut transaction, id, Some(tenant)).await? else {
            return Ok(Changed::NotFound);
        };
        let mut stopped = Vec::new();
        let gate = project.pause_reason.as_deref() == Some("gate");
        match (change, project.status) {
            (Change::Approve(Some(seen)), ProjectStatus::AwaitingApproval) if seen != project.plan_version => {
                return Ok(Changed::Stale(project.plan_version));
            }
            (Change::Approve(_), ProjectStatus::AwaitingApproval) => {
                project.status = ProjectStatus::Approved;
                project.note("approved", json!({}));
            }
            (Change::Pause, ProjectStatus::Approved | ProjectStatus::InProgress) => project.pause("request"),
            (Change::Resume, ProjectStatus::Paused) if !gate => {
                project.status = ProjectStatus::Approved;
                project.note("resumed", json!({}));
            }
            (Change::Continue, ProjectStatus::Paused) if gate => {
                pass_gate(&mut transaction, &project).await?;
                project.status = ProjectStatus::Approved;
                project.note("continued", json!({ "phase": project.phase }));
            }
            (Change::Cancel(running), status) if !status.is_terminal() => {
                cancel_pending(&mut transaction, &mut project).await?;
                stopped = cancel(&mut transaction, &project, running).await?;
                project.end(ProjectStatus::Cancelled, None);
            }
            (_, status) => return Ok(Changed::Refused(status)),
        }
        project.save(&mut transaction).await?;
        transaction.commit().await?;
        Ok(Changed::Done(stopped))
    }
}

async fn pass_gate(connection: &mut PgConnection, project: &Locked) -> Result<(), StoreError> {
    sqlx::query!(
        "update project_phases set has_gate = false where project_id = $1 and position = $2",
        project.id.0,
        project.phase,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Cancels the planner, and running tasks if that is asked for. Their ends do not lock the project.
async fn cancel(
    connection: &mut PgConnection,
    project: &Locked,
    running: RunningTasks,
) -> Result<Vec<ExecutionId>, StoreError> {
    let planner = project.planner.filter(|_| project.status == ProjectStatus::Planning);
    let mut ids: Vec<Uuid> = planner.into_iter().collect();
    if running == RunningTasks::Cancel {
        let running = sqlx::query_scalar!(
            r#"
            select execution_id as "id!" from project_tasks
            where project_id = $1 and status = 'running' and execution_id is not null
            "#,
            project.id.0,
        );
        ids.extend(running.fetch_all(&mut *connection).await?);
    }
    if !ids.is_empty() {
        sqlx::query_file!("src/sql/cancel.sql", &ids, Some(project.tenant.0) as Option<Uuid>, CANCELLED)
            .fetch_all(connection)
            .await?;
    }
    Ok(ids.into_iter().map(ExecutionId).collect())
}
