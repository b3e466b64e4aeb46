//! The removal of a project that has ended, with the texts of its executions.

use longhaul_shared::domain::{ExecutionId, ProjectId, ProjectStatus, TenantId};

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
        let gone = sqlx::query_scalar!(
            r#"
            with gone as (
                delete from projects where id = $1 and tenant_id = $2 and finished_at is not null and running = 0
                returning id
            ),
            budget as (
                delete from budgets b using gone where b.root_id = gone.id
            ),
            signals as (
                delete from project_signals s using gone where s.project_id = gone.id
            )
            select id from gone
            "#,
            id.0,
            tenant.0,
        );
        Ok(if gone.fetch_optional(&self.pool).await?.is_some() {
            Removed::Done
        } else {
            Removed::Refused(ProjectStatus::InProgress)
        })
    }
}
