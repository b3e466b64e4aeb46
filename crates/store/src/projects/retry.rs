//! The retry of one task by a person: it is pending again, and so is what was skipped because of it.

use longhaul_domain::{ApiKeyId, ProjectId, ProjectStatus, TaskStatus, TenantId};
use serde_json::json;
use sqlx::PgConnection;

use super::{
    edit::note_author,
    ends::leave_signal,
    locked::{Locked, begin},
    plan_rows::{Node, blocked},
};
use crate::{Store, StoreError};

/// Result of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    Done,
    /// Only a failed or cancelled task can be retried.
    TaskNotFailed(TaskStatus),
    /// The project was cancelled, or its deadline passed.
    Refused(ProjectStatus),
    NotFound,
}

struct Row {
    key: String,
    phase: i32,
    depends_on: Vec<String>,
    status: TaskStatus,
    attempts: i32,
}

impl Store {
    /// Starts a failed task again, with what waits for it; `author` asks for it. A failed project is in line again.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn retry_task(
        &self,
        tenant: TenantId,
        id: ProjectId,
        (key, author): (&str, ApiKeyId),
    ) -> Result<Retried, StoreError> {
        let mut transaction = begin(&self.pool).await?;
        let Some(mut project) = Locked::wait_for(&mut transaction, id, Some(tenant)).await? else {
            return Ok(Retried::NotFound);
        };
        let rows = rows(&mut transaction, id).await?;
        let mut nodes: Vec<Node<'_>> =
            rows.iter().map(|row| Node { key: &row.key, depends_on: &row.depends_on, status: row.status }).collect();
        let Some(place) = rows.iter().position(|row| row.key == key) else { return Ok(Retried::NotFound) };
        let before = nodes[place].status;
        let has_run = rows[place].attempts > 0;
        if !(has_run && matches!(before, TaskStatus::Failed | TaskStatus::Cancelled)) {
            return Ok(Retried::TaskNotFailed(before));
        }
        if project.status == ProjectStatus::Cancelled || project.is_overdue() {
            return Ok(Retried::Refused(project.status));
        }
        nodes[place].status = TaskStatus::Pending;
        let still = blocked(&nodes);
        let freed = |node: &Node<'_>| node.status == TaskStatus::Skipped && !still.contains(node.key);
        let freed: Vec<usize> = (0..rows.len()).filter(|&at| freed(&nodes[at])).collect();
        project.counts.shift(before, TaskStatus::Pending, 1);
        project.counts.shift(TaskStatus::Skipped, TaskStatus::Pending, freed.len());
        let open: Vec<&Row> = freed.iter().chain([&place]).map(|&at| &rows[at]).collect();
        reopen(&mut transaction, id, &open).await?;
        project.phase = open.iter().map(|row| row.phase).fold(project.phase, i32::min);
        project.note("task_retrying", json!({ "task": key }));
        if project.status.is_terminal() {
            project.status = ProjectStatus::Approved;
        }
        note_author(&mut transaction, id, Some(author)).await?;
        project.save(&mut transaction).await?;
        transaction.commit().await?;
        Ok(Retried::Done)
    }
}

async fn rows(connection: &mut PgConnection, id: ProjectId) -> Result<Vec<Row>, StoreError> {
    let rows = sqlx::query_as!(
        Row,
        r#"
        select key, phase, depends_on, status as "status: _", attempts from project_tasks
        where project_id = $1 order by position
        "#,
        id.0,
    );
    Ok(rows.fetch_all(connection).await?)
}

/// Makes tasks pending, counts them in their phases, and leaves a signal.
async fn reopen(connection: &mut PgConnection, id: ProjectId, tasks: &[&Row]) -> Result<(), StoreError> {
    let keys: Vec<String> = tasks.iter().map(|task| task.key.clone()).collect();
    let phases: Vec<i32> = tasks.iter().map(|task| task.phase).collect();
    sqlx::query!(
        "with phases as (
             update project_phases p set open = p.open + c.n
             from (select phase, count(*)::int as n from unnest($3::int[]) as c (phase) group by phase) c
             where p.project_id = $1 and p.position = c.phase
         )
         update project_tasks
         set status = 'pending', is_ready = remaining_deps = 0, finished_at = null, failure_code = null
         where project_id = $1 and key = any ($2)",
        id.0,
        &keys,
        &phases,
    )
    .execute(&mut *connection)
    .await?;
    leave_signal(connection, &[id.0]).await
}
