//! Ends of the executions of a project: the reaction `project`.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, ProjectId, ProjectStatus, TaskStatus, project::Plan};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    agents::agents_of,
    locked::Locked,
    plan_rows::{PlanRows, insert_plan},
};
use crate::StoreError;

/// Most rows of `ends` in one look.
const PORTION: i64 = 200;

/// A reason to look at a project.
pub(super) struct Signal {
    /// Row of `ends`.
    pub(super) id: i64,
    /// Execution that ended.
    pub(super) execution_id: Option<Uuid>,
}

/// Reads what a locked project has to look at. The transaction that looks strikes it.
pub(super) async fn signals(connection: &mut PgConnection, id: ProjectId) -> Result<Vec<Signal>, StoreError> {
    let due = sqlx::query_as!(
        Signal,
        "select id, execution_id from ends where project_id = $1 and 'project' = any (reactions) order by id limit $2",
        id.0,
        PORTION,
    );
    Ok(due.fetch_all(connection).await?)
}

/// Leaves a row in `ends` for a change of a project that is no end, in the transaction of the change.
pub(super) async fn leave_signal(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into ends (tenant_id, event, project_id, occurred_at, reactions, next_at)
         select p.tenant_id, 'project.changed', p.id, t.now, '{project}', t.now
         from projects p, (select longhaul_now() as now) t where p.id = any ($1)",
        ids,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes the plan that the planner made, or fails the project.
pub(super) async fn end_planning(
    connection: &mut PgConnection,
    project: &mut Locked,
    planner: Uuid,
) -> Result<(), StoreError> {
    let row = sqlx::query!(
        r#"
        select e.status::text as "status!", e.failure_code, p.failure_summary, p.output::text as output
        from executions e join execution_payloads p on p.execution_id = e.id where e.id = $1
        "#,
        planner,
    )
    .fetch_one(&mut *connection)
    .await?;
    let failed = |why: String| Some(("plan_failed", why));
    if row.status != "FINISHED" {
        let (code, summary) = (row.failure_code.unwrap_or_default(), row.failure_summary.unwrap_or_default());
        project.end(ProjectStatus::Failed, failed(format!("the planner failed ({code}): {summary}")));
        return Ok(());
    }
    let agents = agents_of(connection, project.id).await?;
    let plan: Result<Plan, _> = serde_json::from_str(&row.output.unwrap_or_default());
    let checked = plan.map_err(|error| error.to_string()).and_then(|plan| {
        plan.check(|agent| agents.contains_key(agent)).map_err(|problems| {
            let each = problems.iter().map(|problem| format!("{} {}", problem.path, problem.message));
            each.collect::<Vec<_>>().join("; ")
        })
    });
    match checked {
        Ok(plan) => {
            project.take_plan();
            insert_plan(connection, project, &PlanRows::new(&plan)).await
        }
        Err(why) => {
            project.end(ProjectStatus::Failed, failed(format!("the planner's plan is invalid: {why}")));
            Ok(())
        }
    }
}

/// A task whose execution ended.
struct EndedTask {
    key: String,
    phase: i32,
    attempts: i32,
    retries: i32,
    execution_id: Uuid,
}

/// The end of an execution.
struct End {
    status: String,
    failure_code: Option<String>,
    finished_at: DateTime<Utc>,
}

/// Records the ends of tasks: what a completed one freed becomes ready, what a failed one blocks is skipped.
///
/// Here and below each statement names its rows by an array, one table at a time: the planner, which does not know how
/// many tasks a project has, would otherwise read all of them for a join.
pub(super) async fn end_tasks(
    connection: &mut PgConnection,
    project: &mut Locked,
    executions: &[Uuid],
) -> Result<(), StoreError> {
    let ends = ends(connection, executions).await?;
    let tasks = sqlx::query_as!(
        EndedTask,
        r#"
        select key, phase, attempts, retries, execution_id as "execution_id!" from project_tasks
        where execution_id = any ($2) and project_id = $1 and status = 'running'
        "#,
        project.id.0,
        executions,
    )
    .fetch_all(&mut *connection)
    .await?;
    let may_retry = !project.status.is_terminal();
    let (mut completed, mut dead, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    let mut ended = Vec::with_capacity(tasks.len());
    for task in &tasks {
        let Some(end) = ends.get(&task.execution_id) else { continue };
        // The end may have been committed after this transaction began; what it frees starts later.
        project.now = project.now.max(end.finished_at);
        let status = status_after(task, end, may_retry);
        project.counts.shift(TaskStatus::Running, status, 1);
        let kind = match status {
            TaskStatus::Completed => {
                completed.push(task.key.clone());
                "task_completed"
            }
            TaskStatus::Pending | TaskStatus::Running | TaskStatus::Skipped => "task_retrying",
            TaskStatus::Failed => {
                dead.push(task.key.clone());
                "task_failed"
            }
            TaskStatus::Cancelled => {
                dead.push(task.key.clone());
                "task_cancelled"
            }
        };
        if status != TaskStatus::Pending {
            closed.push(task.phase);
        }
        let data = json!({
            "task": task.key, "execution_id": ExecutionId(task.execution_id), "failure_code": end.failure_code,
        });
        project.note(kind, without_nulls(data));
        ended.push((task, end, status));
    }
    record(connection, project, &ended).await?;
    count_down(connection, project, &completed).await?;
    if !dead.is_empty() {
        closed.extend(skip_dependants(connection, project, &dead).await?);
    }
    close(connection, project, &closed).await
}

async fn ends(connection: &mut PgConnection, executions: &[Uuid]) -> Result<HashMap<Uuid, End>, StoreError> {
    let rows = sqlx::query!(
        r#"
        select id, status::text as "status!", failure_code, finished_at as "finished_at!" from executions
        where id = any ($1) and finished_at is not null
        "#,
        executions,
    )
    .fetch_all(connection)
    .await?;
    let end = |row_status, failure_code, finished_at| End { status: row_status, failure_code, finished_at };
    Ok(rows.into_iter().map(|row| (row.id, end(row.status, row.failure_code, row.finished_at))).collect())
}

fn status_after(task: &EndedTask, end: &End, may_retry: bool) -> TaskStatus {
    match (end.status.as_str(), end.failure_code.as_deref()) {
        ("FINISHED", _) => TaskStatus::Completed,
        (_, Some("cancelled")) => TaskStatus::Cancelled,
        // Another execution would find the budget as empty.
        (_, Some("budget_exhausted")) => TaskStatus::Failed,
        _ if may_retry && task.attempts <= task.retries => TaskStatus::Pending,
        _ => TaskStatus::Failed,
    }
}

async fn record(
    connection: &mut PgConnection,
    project: &Locked,
    ended: &[(&EndedTask, &End, TaskStatus)],
) -> Result<(), StoreError> {
    let keys: Vec<String> = ended.iter().map(|(task, ..)| task.key.clone()).collect();
    let statuses: Vec<String> = ended.iter().map(|(.., status)| status.as_str().to_owned()).collect();
    let times: Vec<DateTime<Utc>> = ended.iter().map(|(_, end, _)| end.finished_at).collect();
    let codes: Vec<Option<String>> = ended.iter().map(|(_, end, _)| end.failure_code.clone()).collect();
    sqlx::query!(
        "update project_tasks
         set status = ($3::text[])[array_position($2, key)],
             is_ready = ($3::text[])[array_position($2, key)] = 'pending',
             finished_at = ($4::timestamptz[])[array_position($2, key)],
             failure_code = ($5::text[])[array_position($2, key)]
         where project_id = $1 and key = any ($2::text[])",
        project.id.0,
        &keys,
        &statuses,
        &times,
        &codes as &[Option<String>],
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn without_nulls(mut data: Value) -> Value {
    if let Some(fields) = data.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    data
}

/// Counts down what waits for completed tasks.
async fn count_down(connection: &mut PgConnection, project: &Locked, completed: &[String]) -> Result<(), StoreError> {
    if completed.is_empty() {
        return Ok(());
    }
    let freed = sqlx::query!(
        r#"
        select dependant, count(*)::int as "n!" from project_edges where project_id = $1 and key = any ($2)
        group by dependant
        "#,
        project.id.0,
        completed,
    )
    .fetch_all(&mut *connection)
    .await?;
    let (keys, numbers): (Vec<String>, Vec<i32>) = freed.into_iter().map(|row| (row.dependant, row.n)).unzip();
    sqlx::query!(
        "update project_tasks
         set remaining_deps = remaining_deps - ($3::int[])[array_position($2, key)],
             is_ready = status = 'pending' and remaining_deps = ($3::int[])[array_position($2, key)]
         where project_id = $1 and key = any ($2::text[])",
        project.id.0,
        &keys,
        &numbers,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Skips what depends on dead tasks, directly or not. Returns the phase of each.
async fn skip_dependants(
    connection: &mut PgConnection,
    project: &mut Locked,
    dead: &[String],
) -> Result<Vec<i32>, StoreError> {
    let skipped = sqlx::query!(
        r#"
        with recursive reached (key) as (
            select unnest($2::text[])
            union
            select e.dependant from reached r join project_edges e on e.project_id = $1 and e.key = r.key
        )
        update project_tasks t set status = 'skipped', is_ready = false
        from reached r
        where t.project_id = $1 and t.key = r.key and t.status = 'pending'
        returning t.key, t.phase
        "#,
        project.id.0,
        dead,
    )
    .fetch_all(connection)
    .await?;
    project.counts.shift(TaskStatus::Pending, TaskStatus::Skipped, skipped.len());
    for task in &skipped {
        project.note_task("task_skipped", &task.key);
    }
    Ok(skipped.into_iter().map(|task| task.phase).collect())
}

/// Counts tasks of phases that have ended.
async fn close(connection: &mut PgConnection, project: &Locked, phases: &[i32]) -> Result<(), StoreError> {
    if phases.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "update project_phases p set open = p.open - c.n
         from (select phase, count(*)::int as n from unnest($2::int[]) as c (phase) group by phase) c
         where p.project_id = $1 and p.position = c.phase",
        project.id.0,
        phases,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Cancels the tasks that have not started.
pub(super) async fn cancel_pending(connection: &mut PgConnection, project: &mut Locked) -> Result<(), StoreError> {
    let cancelled = sqlx::query!(
        "update project_tasks set status = 'cancelled', is_ready = false, finished_at = $2
         where project_id = $1 and status = 'pending' returning key, phase",
        project.id.0,
        project.now,
    )
    .fetch_all(&mut *connection)
    .await?;
    project.counts.shift(TaskStatus::Pending, TaskStatus::Cancelled, cancelled.len());
    let phases: Vec<i32> = cancelled.iter().map(|task| task.phase).collect();
    close(connection, project, &phases).await
}
