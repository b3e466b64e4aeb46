//! The rows of a plan: phases, tasks and the edges between them.

use std::collections::{HashMap, HashSet};

use longhaul_domain::{ProjectId, TaskStatus, project::CheckedPlan};
use sqlx::PgConnection;

use super::locked::{Counts, Locked};
use crate::StoreError;

/// A row of the type `project_phase`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "project_phase")]
struct PhaseRow {
    position: i32,
    name: String,
    has_gate: bool,
    execution_strategy: Option<String>,
}

/// A row of the type `project_task`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "project_task")]
struct TaskRow {
    key: String,
    position: i32,
    phase: i32,
    title: String,
    prompt: String,
    agent_key: Option<String>,
    depends_on: Vec<String>,
    retries: i32,
    timeout_seconds: Option<i32>,
    remaining_deps: i32,
    status: String,
}

/// A plan as rows, in which tasks that have started keep their status.
#[derive(Debug)]
pub(super) struct PlanRows {
    phases: Vec<PhaseRow>,
    tasks: Vec<TaskRow>,
    counts: Counts,
}

/// A task and its place among the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) key: &'a str,
    pub(super) depends_on: &'a [String],
    pub(super) status: TaskStatus,
}

/// Keys of the tasks that depend, directly or not, on one that failed or was cancelled.
pub(super) fn blocked<'a>(nodes: &[Node<'a>]) -> HashSet<&'a str> {
    let mut dependants: HashMap<&str, Vec<&'a str>> = HashMap::new();
    for node in nodes {
        for on in node.depends_on {
            dependants.entry(on.as_str()).or_default().push(node.key);
        }
    }
    let is_dead = |node: &&Node<'_>| matches!(node.status, TaskStatus::Failed | TaskStatus::Cancelled);
    let mut stack: Vec<&str> = nodes.iter().filter(is_dead).map(|node| node.key).collect();
    let mut blocked = HashSet::new();
    while let Some(key) = stack.pop() {
        for &dependant in dependants.get(key).into_iter().flatten() {
            if blocked.insert(dependant) {
                stack.push(dependant);
            }
        }
    }
    blocked
}

impl PlanRows {
    /// Rows of a plan of which nothing has started.
    pub(super) fn new(plan: &CheckedPlan) -> Self {
        Self::around(plan, &HashMap::new())
    }

    /// Rows of a plan in which these tasks have started.
    pub(super) fn around(plan: &CheckedPlan, started: &HashMap<&str, TaskStatus>) -> Self {
        let status_of = |key: &str| started.get(key).copied().unwrap_or(TaskStatus::Pending);
        let nodes: Vec<Node<'_>> = plan
            .tasks
            .iter()
            .map(|task| Node { key: &task.key, depends_on: &task.depends_on, status: status_of(&task.key) })
            .collect();
        let blocked = blocked(&nodes);
        let mut counts = Counts::default();
        let int = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let mut tasks = Vec::with_capacity(plan.tasks.len());
        for (place, task) in plan.tasks.iter().enumerate() {
            let mut status = status_of(&task.key);
            if status == TaskStatus::Pending && blocked.contains(task.key.as_str()) {
                status = TaskStatus::Skipped;
            }
            counts.add(status);
            let open = task.depends_on.iter().filter(|on| status_of(on) != TaskStatus::Completed);
            tasks.push(TaskRow {
                key: task.key.clone(),
                position: int(place),
                phase: int(plan.phase_of[place]),
                title: task.title.clone(),
                prompt: task.prompt.clone(),
                agent_key: task.agent.clone(),
                depends_on: task.depends_on.clone(),
                retries: task.retries.into(),
                timeout_seconds: task.timeout_seconds.and_then(|seconds| i32::try_from(seconds).ok()),
                remaining_deps: int(open.count()),
                status: status.as_str().to_owned(),
            });
        }
        let phases = plan.phases.iter().enumerate().map(|(place, phase)| PhaseRow {
            position: int(place),
            name: phase.name.clone(),
            has_gate: phase.gate,
            execution_strategy: phase.execution_strategy.map(|strategy| strategy.as_str().to_owned()),
        });
        Self { phases: phases.collect(), tasks, counts }
    }

    /// The phase to go on with, given the name of the one that ran: that one, or an earlier one with an open task.
    /// Gates before it are passed.
    pub(super) fn go_on_from(&mut self, ran: &str) -> i32 {
        let open = |row: &&TaskRow| matches!(row.status.as_str(), "pending" | "running");
        let first_open = self.tasks.iter().filter(open).map(|row| row.phase).min();
        let ran = self.phases.iter().find(|phase| phase.name == ran).map(|phase| phase.position);
        let phase = first_open.into_iter().chain(ran).min().unwrap_or_default();
        for row in &mut self.phases {
            row.has_gate &= row.position >= phase;
        }
        phase
    }
}

/// Stores the rows of a plan; tasks that are stored keep everything but their place.
pub(super) async fn insert_plan(
    connection: &mut PgConnection,
    project: &mut Locked,
    rows: &PlanRows,
) -> Result<(), StoreError> {
    let id: ProjectId = project.id;
    sqlx::query!(
        "insert into project_tasks (project_id, key, position, phase, title, prompt, agent_key, depends_on, retries,
             timeout_seconds, remaining_deps, status, is_ready)
         select $1, t.key, t.position, t.phase, t.title, t.prompt, t.agent_key, t.depends_on, t.retries,
             t.timeout_seconds, t.remaining_deps, t.status, t.status = 'pending' and t.remaining_deps = 0
         from unnest($2::project_task[]) as t
         on conflict (project_id, key) do update set position = excluded.position, phase = excluded.phase",
        id.0,
        &rows.tasks as _,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "insert into project_edges (project_id, key, dependant)
         select $1, d.key, t.key from unnest($2::project_task[]) as t cross join lateral unnest(t.depends_on) as d (key)
         on conflict do nothing",
        id.0,
        &rows.tasks as _,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "insert into project_phases (project_id, position, name, has_gate, execution_strategy, open)
         select $1, p.position, p.name, p.has_gate, p.execution_strategy, (
             select count(*) from project_tasks t
             where t.project_id = $1 and t.phase = p.position and t.status in ('pending', 'running')
         )
         from unnest($2::project_phase[]) as p",
        id.0,
        &rows.phases as _,
    )
    .execute(&mut *connection)
    .await?;
    project.counts = rows.counts;
    Ok(())
}
