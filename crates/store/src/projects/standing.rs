//! The project of a session as a message to it finds it.

use longhaul_domain::{ProjectId, ProjectStatus, SessionId, TaskStatus, TenantId};
use uuid::Uuid;

use super::{locked::snapshot, outputs::texts_of};
use crate::{Store, StoreError};

/// Characters of one result.
const RESULT_CHARS: usize = 2_000;
/// Results, those of the tasks that completed last.
const RESULTS: i64 = 20;

/// A project as a conversation about it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub goal: String,
    pub status: ProjectStatus,
    /// 0 without a plan.
    pub plan_version: i32,
    /// In the order of the plan.
    pub tasks: Vec<TaskStanding>,
    /// Keys of tasks with the beginning of what they gave, the last to complete first.
    pub results: Vec<(String, String)>,
}

/// A task of a [`Standing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStanding {
    pub key: String,
    pub title: String,
    pub depends_on: Vec<String>,
    pub status: TaskStatus,
}

impl Store {
    /// The project that a session is about, if it has one that is not deleted.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn project_of_session(&self, session: SessionId) -> Result<Option<(TenantId, ProjectId)>, StoreError> {
        let found = sqlx::query!(
            "select p.tenant_id, p.id from sessions s join projects p on p.id = s.project_id \
                 and p.tenant_id = s.tenant_id
             where s.id = $1",
            session.0,
        );
        Ok(found.fetch_optional(&self.pool).await?.map(|row| (TenantId(row.tenant_id), ProjectId(row.id))))
    }

    /// The project that a session is about as it stands, if it has one.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn standing_of_session(&self, session: SessionId) -> Result<Option<Standing>, StoreError> {
        let Some((_, id)) = self.project_of_session(session).await? else { return Ok(None) };
        let mut transaction = snapshot(&self.pool).await?;
        let project = sqlx::query!(
            r#"select goal, status as "status: ProjectStatus", plan_version from projects where id = $1"#,
            id.0,
        );
        let Some(project) = project.fetch_optional(&mut *transaction).await? else { return Ok(None) };
        let tasks = sqlx::query_as!(
            TaskStanding,
            r#"
            select key, title, depends_on, status as "status: _" from project_tasks
            where project_id = $1 order by position
            "#,
            id.0,
        );
        let tasks = tasks.fetch_all(&mut *transaction).await?;
        let completed = sqlx::query!(
            r#"
            select key, execution_id as "execution_id!" from project_tasks
            where project_id = $1 and status = 'completed' and execution_id is not null
            order by finished_at desc, key limit $2
            "#,
            id.0,
            RESULTS,
        );
        let completed = completed.fetch_all(&mut *transaction).await?;
        let executions: Vec<Uuid> = completed.iter().map(|row| row.execution_id).collect();
        let mut texts = texts_of(&mut transaction, &executions, RESULT_CHARS).await?;
        let results = completed.into_iter().filter_map(|row| Some((row.key, texts.remove(&row.execution_id)?)));
        Ok(Some(Standing {
            goal: project.goal,
            status: project.status,
            plan_version: project.plan_version,
            tasks,
            results: results.collect(),
        }))
    }
}
