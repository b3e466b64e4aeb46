//! The removal of a project that has ended, with the texts of its executions.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, ProjectId, ProjectStatus, TenantId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    history::{
        erasure::{Erased, Erasure},
        prune::OldItem,
    },
};

/// Result of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// It is gone, and the texts of these executions with it.
    Done(Vec<Erased>),
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
        let mut erased = Vec::new();
        for execution in executions {
            match self.erase_execution(tenant, ExecutionId(execution)).await? {
                Erasure::NotEnded(open) => return Ok(Removed::NotEnded(open)),
                Erasure::Done(executions) => erased.extend(executions),
                Erasure::NotFound => {}
            }
        }
        // A retry that came meanwhile keeps the project.
        let is_gone = self.delete_ended_projects(&[id.0], None).await? > 0;
        Ok(if is_gone { Removed::Done(erased) } else { Removed::Refused(ProjectStatus::InProgress) })
    }

    /// The next projects that ended before `before`, with their ends; the first ended at the time, and has an id after
    /// the one, that `after` names.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn ended_projects_after(
        &self,
        after: (DateTime<Utc>, Uuid),
        before: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<(OldItem, DateTime<Utc>)>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select id, tenant_id, finished_at as "finished_at!" from projects
            where finished_at < $3 and (finished_at, id) > ($1, $2) order by finished_at, id limit $4
            "#,
            after.0,
            after.1,
            before,
            limit,
        );
        let rows = rows.fetch_all(&self.pool).await?.into_iter();
        Ok(rows.map(|row| (OldItem { id: row.id, tenant_id: row.tenant_id, rows: 1 }, row.finished_at)).collect())
    }

    pub(crate) async fn delete_ended_projects(
        &self,
        ids: &[Uuid],
        before: Option<DateTime<Utc>>,
    ) -> Result<i64, StoreError> {
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
            ),
            answers as (
                update kept_answers k set body = null
                from gone where k.body is not null and k.subjects && array[gone.id::text]
            )
            select count(*) as "n!" from gone
            "#,
            ids,
            before,
        );
        Ok(gone.fetch_one(&self.pool).await?)
    }
}
