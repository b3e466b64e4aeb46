//! One look at a project: the ends of its executions, the phase that runs, and what may start.

use longhaul_domain::{ProjectId, ProjectStatus, TenantId};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    ends::{cancel_pending, end_planning, end_tasks, leave_signal, signals},
    locked::{Locked, begin},
    start::Started,
};
use crate::{
    Store, StoreError,
    ends::{Reaction, Subject, strike_ends},
    fleet::maintenance::Runnable,
};

/// Most looks at projects in one call; what is left has rows in `ends`.
const LOOKS: usize = 1_000;

/// What one look changed.
struct Advanced {
    started: Vec<Runnable>,
    /// The tenant whose line moved.
    line: Option<TenantId>,
}

/// A phase of the project.
struct Phase {
    position: i32,
    name: String,
    has_gate: bool,
    execution_strategy: Option<String>,
    open: i32,
}

impl Store {
    /// Looks at a project until nothing is left to do, and at those that its tenant's line lets run. Returns the
    /// executions that it started. Safe to call at any time, by any process: one that finds the project locked leaves,
    /// because the other looks again before it leaves.
    ///
    /// # Errors
    /// Postgres is unavailable; what is left undone has rows in `ends`.
    pub async fn drive_project(&self, id: ProjectId, max_running: u32) -> Result<Vec<Runnable>, StoreError> {
        let (mut projects, mut started, mut looks) = (vec![id], Vec::new(), 0);
        while let Some(id) = projects.pop() {
            while looks < LOOKS {
                looks += 1;
                let Some(advanced) = self.advance_project(id).await? else { break };
                started.extend(advanced.started);
                if let Some(tenant) = advanced.line {
                    projects.extend(self.admit_projects(tenant, max_running).await?);
                }
            }
        }
        Ok(started)
    }

    /// Lets approved projects of a tenant run, and drives those that may.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn drive_line(&self, tenant: TenantId, max_running: u32) -> Result<Vec<Runnable>, StoreError> {
        let mut started = Vec::new();
        for id in self.admit_projects(tenant, max_running).await? {
            started.extend(self.drive_project(id, max_running).await?);
        }
        Ok(started)
    }

    /// Leaves a signal for projects past their deadline, at most `limit` at a time.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn signal_late_projects(&self, limit: i64) -> Result<(), StoreError> {
        let late = sqlx::query_scalar!(
            "select id from projects p
             where deadline_at <= longhaul_now() and finished_at is null
                 and not exists (select from ends e where e.project_id = p.id and 'project' = any (e.reactions))
             order by deadline_at limit $1",
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        if late.is_empty() {
            return Ok(());
        }
        leave_signal(&mut *self.pool.acquire().await?, &late).await
    }

    /// Removes rows of `ends` of a project that is gone. Returns false if it is there.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_gone_project(&self, of: &Subject) -> Result<bool, StoreError> {
        let is_there = sqlx::query_scalar!(r#"select exists (select from projects where id = $1) as "is!""#, of.id);
        if is_there.fetch_one(&self.pool).await? {
            return Ok(false);
        }
        strike_ends(&mut *self.pool.acquire().await?, Reaction::Project, &of.rows).await?;
        Ok(true)
    }

    /// One look; `None` if there is nothing to look at, or another transaction looks.
    async fn advance_project(&self, id: ProjectId) -> Result<Option<Advanced>, StoreError> {
        let has_signals = sqlx::query_scalar!(
            r#"select exists (select from ends where project_id = $1 and 'project' = any (reactions)) as "has!""#,
            id.0,
        );
        if !has_signals.fetch_one(&self.pool).await? {
            return Ok(None);
        }
        let mut transaction = begin(&self.pool).await?;
        let Some(mut project) = Locked::try_lock(&mut transaction, id).await? else { return Ok(None) };
        let signals = signals(&mut transaction, id).await?;
        if signals.is_empty() {
            return Ok(None);
        }
        let mut ended: Vec<Uuid> = signals.iter().filter_map(|signal| signal.execution_id).collect();
        if let Some(planner) = project.planner.filter(|planner| ended.contains(planner)) {
            ended.retain(|execution| *execution != planner);
            if project.status == ProjectStatus::Planning {
                end_planning(&mut transaction, &mut project, planner).await?;
            }
        }
        if !ended.is_empty() {
            end_tasks(&mut transaction, &mut project, &ended).await?;
        }
        if project.is_overdue() && !project.status.is_terminal() {
            cancel_pending(&mut transaction, &mut project).await?;
            project
                .end(ProjectStatus::Failed, Some(("deadline_exceeded", "the deadline of the project passed".into())));
        }
        let mut started = Started::default();
        if project.status == ProjectStatus::InProgress
            && let Some(phase) = enter_phase(&mut transaction, &mut project).await?
        {
            let cap = project.cap(phase.execution_strategy.as_deref());
            started = self.start_tasks(&mut transaction, &mut project, cap).await?;
        }
        if started.has_more {
            leave_signal(&mut transaction, &[id.0]).await?;
        }
        let line = project.moves_the_line().then_some(project.tenant);
        project.save(&mut transaction).await?;
        let taken: Vec<i64> = signals.iter().map(|signal| signal.id).collect();
        // Rows that were put off meanwhile are looked at once more, which changes nothing.
        strike_ends(&mut transaction, Reaction::Project, &taken).await?;
        transaction.commit().await?;
        Ok(Some(Advanced { started: started.runnable, line }))
    }
}

/// The phase that runs: the first with an open task from the current one on, unless a gate comes before it. Ends the
/// project after the last.
async fn enter_phase(connection: &mut PgConnection, project: &mut Locked) -> Result<Option<Phase>, StoreError> {
    let phases = sqlx::query_as!(
        Phase,
        "select position, name, has_gate, execution_strategy, open from project_phases
         where project_id = $1 and position >= $2 order by position",
        project.id.0,
        project.phase,
    )
    .fetch_all(connection)
    .await?;
    let last = phases.last().map(|phase| phase.position);
    for phase in phases {
        if phase.position != project.phase {
            project.note("phase_started", json!({ "phase": phase.name }));
        }
        project.phase = phase.position;
        if phase.open > 0 {
            return Ok(Some(phase));
        }
        if phase.has_gate && Some(phase.position) != last {
            project.pause("gate");
            return Ok(None);
        }
    }
    let counts = project.counts;
    if counts.failed + counts.skipped + counts.cancelled == 0 {
        project.end(ProjectStatus::Completed, None);
    } else {
        let summary = format!(
            "of {} tasks {} failed, {} were skipped and {} were cancelled",
            counts.total(),
            counts.failed,
            counts.skipped,
            counts.cancelled
        );
        project.end(ProjectStatus::Failed, Some(("task_failed", summary)));
    }
    Ok(None)
}
