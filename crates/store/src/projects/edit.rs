//! Another plan for a project, also while it runs: tasks that have started stay as they are.

use std::collections::HashMap;

use longhaul_domain::{
    ApiKeyId, ProjectId, ProjectStatus, TaskStatus, TenantId,
    project::{Plan, PlanProblem, PlannedPhase, PlannedTask},
};
use serde_json::json;
use sqlx::PgConnection;

use super::{
    agents::{MAX_AGENTS, ProjectAgent, agents_of, insert_agents},
    ends::leave_signal,
    locked::{Locked, begin},
    plan_rows::{PlanRows, insert_plan},
    read::{StoredTask, stored_phases, stored_tasks},
};
use crate::{Store, StoreError};

/// A plan to put.
#[derive(Debug, Clone)]
pub struct NewPlan {
    pub plan: Plan,
    /// Number of the plan that the caller has seen; another one in its place is not replaced.
    pub seen: Option<i32>,
    /// Agents that its tasks name.
    pub agents: Vec<ProjectAgent>,
    /// Key of the caller; `None` for a planner.
    pub author: Option<ApiKeyId>,
    /// True if the caller may approve plans: only they change one that was approved.
    pub may_approve: bool,
}

/// Result of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edited {
    /// The plan has this number, and the project this status.
    Done {
        version: i32,
        status: ProjectStatus,
    },
    /// The plan breaks rules.
    Invalid(Vec<PlanProblem>),
    /// A task that has started would change.
    TaskStarted {
        key: String,
        status: TaskStatus,
    },
    /// The plan has another number than the caller has seen.
    Stale(i32),
    /// The plan was approved, or the new one has no gate where it has one, and the caller may not approve plans.
    NeedsApprover,
    /// The project is in a state without an edit.
    Refused(ProjectStatus),
    NotFound,
}

impl Store {
    /// Puts the plan of a project. One that is in force already stays as it is: a repeat changes nothing.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable: nothing was changed.
    pub async fn put_plan(&self, tenant: TenantId, id: ProjectId, new: NewPlan) -> Result<Edited, StoreError> {
        let mut transaction = begin(&self.pool).await?;
        let Some(mut project) = Locked::wait_for(&mut transaction, id, Some(tenant)).await? else {
            return Ok(Edited::NotFound);
        };
        let (phases, stored) = (stored_phases(&mut transaction, id).await?, stored_tasks(&mut transaction, id).await?);
        // The phase that runs, and those after it.
        let ahead = phases.get(usize::try_from(project.phase).unwrap_or_default()..).unwrap_or_default();
        if is_in_force(&new.plan, &phases, &stored) {
            return Ok(Edited::Done { version: project.plan_version, status: project.status });
        }
        if project.status.is_terminal() || project.status == ProjectStatus::Planning {
            return Ok(Edited::Refused(project.status));
        }
        if new.seen.is_some_and(|seen| seen != project.plan_version) {
            return Ok(Edited::Stale(project.plan_version));
        }
        if project.was_approved() && !new.may_approve {
            return Ok(Edited::NeedsApprover);
        }
        if !new.may_approve && drops_gate(&new.plan, ahead) {
            return Ok(Edited::NeedsApprover);
        }
        let started: Vec<&StoredTask> = stored.iter().filter(|task| !task.status.is_editable()).collect();
        let plan = match around(new.plan, &started) {
            Ok(plan) => plan,
            Err(task) => return Ok(Edited::TaskStarted { key: task.planned.key.clone(), status: task.status }),
        };
        insert_agents(&mut transaction, id, &new.agents).await?;
        let agents = agents_of(&mut transaction, id).await?;
        if agents.len() > MAX_AGENTS {
            let message = format!("with those of earlier plans names {} agents, more than {MAX_AGENTS}", agents.len());
            return Ok(Edited::Invalid(vec![PlanProblem::new("/tasks", message)]));
        }
        let checked = match plan.check(|agent| agents.contains_key(agent)) {
            Ok(checked) => checked,
            Err(problems) => return Ok(Edited::Invalid(problems)),
        };
        let statuses: HashMap<&str, TaskStatus> =
            started.iter().map(|task| (task.planned.key.as_str(), task.status)).collect();
        let mut rows = PlanRows::around(&checked, &statuses);
        clear(&mut transaction, id).await?;
        project.phase = rows.go_on_from(ahead.first().map_or("", |phase| &phase.name));
        insert_plan(&mut transaction, &mut project, &rows).await?;
        if project.status == ProjectStatus::Pending {
            project.take_plan();
        } else {
            project.plan_version += 1;
            project.note("plan_changed", json!({ "version": project.plan_version }));
        }
        let (version, status) = (project.plan_version, project.status);
        note_author(&mut transaction, id, new.author).await?;
        leave_signal(&mut transaction, &[id.0]).await?;
        project.save(&mut transaction).await?;
        transaction.commit().await?;
        Ok(Edited::Done { version, status })
    }
}

/// Notes who wrote tasks that start from now on: they may not approve the calls of these.
pub(super) async fn note_author(
    connection: &mut PgConnection,
    id: ProjectId,
    author: Option<ApiKeyId>,
) -> Result<(), StoreError> {
    let Some(author) = author else { return Ok(()) };
    sqlx::query!(
        "update projects set authors = authors || $2::uuid \
         where id = $1 and submitted_by is distinct from $2::uuid and not authors @> array[$2::uuid]",
        id.0,
        author.0,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The plan with the tasks that have started, which it need not list. Fails if it lists one in another form.
fn around<'a>(mut plan: Plan, started: &[&'a StoredTask]) -> Result<Plan, &'a StoredTask> {
    let given: HashMap<&str, &PlannedTask> = plan.tasks.iter().map(|task| (task.key.as_str(), task)).collect();
    let first_phase = plan.phases.first().map(|phase| phase.name.as_str());
    let mut kept = Vec::new();
    for &task in started {
        let planned = &task.planned;
        match given.get(planned.key.as_str()) {
            // A plan without phases has one, which needs no name.
            None if plan.phases.is_empty() => kept.push(PlannedTask { phase: None, ..planned.clone() }),
            None => kept.push(planned.clone()),
            Some(same) => {
                let phase = same.phase.as_deref().or(first_phase).or(planned.phase.as_deref());
                let same = PlannedTask { phase: phase.map(str::to_owned), ..(*same).clone() };
                if same != *planned {
                    return Err(task);
                }
            }
        }
    }
    // Behind the given ones, whose places errors name.
    plan.tasks.extend(kept);
    Ok(plan)
}

/// True if `plan` has these phases and tasks.
fn is_in_force(plan: &Plan, phases: &[PlannedPhase], stored: &[StoredTask]) -> bool {
    let has_phases = if plan.phases.is_empty() {
        matches!(phases, [one] if !one.gate && one.execution_strategy.is_none())
    } else {
        plan.phases == phases
    };
    let first = phases.first().map(|phase| phase.name.as_str());
    let is_same = |(given, stored): (&PlannedTask, &StoredTask)| {
        let phase = given.phase.as_deref().filter(|_| !plan.phases.is_empty()).or(first).map(str::to_owned);
        PlannedTask { phase, ..given.clone() } == stored.planned
    };
    has_phases && plan.tasks.len() == stored.len() && plan.tasks.iter().zip(stored).all(is_same)
}

/// True if a gate of the phases `ahead` is none in `plan`.
fn drops_gate(plan: &Plan, ahead: &[PlannedPhase]) -> bool {
    let is_kept = |gate: &PlannedPhase| plan.phases.iter().any(|phase| phase.gate && phase.name == gate.name);
    ahead.iter().any(|phase| phase.gate && !is_kept(phase))
}

/// Deletes the phases, and the tasks that an edit may change.
async fn clear(connection: &mut PgConnection, project: ProjectId) -> Result<(), StoreError> {
    sqlx::query!("delete from project_phases where project_id = $1", project.0).execute(&mut *connection).await?;
    sqlx::query!(
        "with gone as (
             delete from project_tasks where project_id = $1 and status in ('pending', 'skipped') returning key
         )
         delete from project_edges e using gone where e.project_id = $1 and e.dependant = gone.key",
        project.0,
    )
    .execute(connection)
    .await?;
    Ok(())
}
