//! The removal of a project that has ended, with the texts of its executions.

use chrono::{DateTime, Utc};
use longhaul_shared::domain::{ExecutionId, ProjectId, ProjectStatus, TenantId};
use uuid::Uuid;

use crate::{Store, StoreError, history::erasure::Erasure};

/// Result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    Done,
    /// The project has not ended.
    Refused(ProjectStatus),
    /// This execution of it, or one below it, has not ended.
    NotEnded(ExecutionId),
    NotFound,
}

impl Store {
    /// Deletes a project that has ended, and erases the texts of its executions, which stay as numbers.
    ///
    /// # Errors
    /// Postgres is unavailable; a repeated call goes on.
    pub async fn delete_project(&self, tenant: TenantId, id: ProjectId) -> Result<Removed, StoreError> {
        let Some(project) = self.get_project(&tenant.into(), id).await? else { return Ok(Removed::NotFound) };
        if !project.status.is_terminal() {
            return Ok(Removed::Refused(project.status));
        }
        let executions = sqlx::query_scalar!("select id from executions where project_id = $1 order by id", id.0)
            .fetch_all(&self.pool)
            .await?;
        for execution in executions {
            if let Erasure::NotEnded(open) = self.erase_execution(tenant, ExecutionId(execution)).await? {
                return Ok(Removed::NotEnded(open));
            }
        }
        // A retry that came meanwhile keeps the project.
        let is_gone = self.delete_ended_projects(&[id.0], None).await? > 0;
        Ok(if is_gone { Removed::Done } else { Removed::Refused(ProjectStatus::InProgress) })
    }

    /// Deletes projects that ended before `before`, at most `limit` at a time, until none is left.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn prune_projects(&self, before: DateTime<Utc>, limit: i64) -> Result<(), StoreError> {
        loop {
            let ids = sqlx::query_scalar!(
                "select id from projects p
                 where finished_at < $1 and running = 0
                     and not exists (select from executions e where e.project_id = p.id and e.finished_at is null)
                 limit $2",
                before,
                limit,
            )
            .fetch_all(&self.pool)
            .await?;
            let gone = self.delete_ended_projects(&ids, Some(before)).await?;
            if gone == 0 {
                return Ok(());
            }
        }
    }

    async fn delete_ended_projects(&self, ids: &[Uuid], before: Option<DateTime<Utc>>) -> Result<i64, StoreError> {
        let gone = sqlx::query_scalar!(
            r#"
            with gone as (
                delete from projects p
                where id = any ($1) and finished_at is not null and running = 0
                    and ($2::timestamptz is null or finished_at < $2)
                    -- Copies of its executions spend its budget.
                    and not exists (select from executions e where e.project_id = p.id and e.finished_at is null)
                returning id
            ),
            budget as (
                delete from budgets b using gone where b.root_id = gone.id
            )
            select count(*) as "n!" from gone
            "#,
            ids,
            before,
        );
        Ok(gone.fetch_one(&self.pool).await?)
    }
}
