//! Starts of tasks: each is an execution of its own, inserted in the transaction that marks the task as running.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use longhaul_domain::{
    ApiKeyId, ExecutionId, MAX_DEADLINE, TaskStatus, cut,
    project::{MAX_OUTPUT_BYTES, fill, named_outputs},
};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    agents::{ProjectAgent, agents_of, put_serve_keys},
    create::insert_of_project,
    locked::Locked,
    outputs::texts_of,
};
use crate::{
    Store, StoreError,
    catalogue::definitions::{AGENT_DEFINITION, agent_definition},
    executions::{planned::Pinned, submit::NewExecution},
    fleet::maintenance::Runnable,
};
use longhaul_telemetry::metrics;

/// Most tasks started at a time.
const PORTION: i32 = 50;

/// A task that may start.
struct ReadyTask {
    key: String,
    prompt: String,
    agent_key: Option<String>,
    timeout_seconds: Option<i32>,
}

/// Tasks that were started.
#[derive(Debug, Default)]
pub(super) struct Started {
    pub(super) runnable: Vec<Runnable>,
    /// True if more may start: the transaction leaves a signal.
    pub(super) has_more: bool,
}

impl Store {
    /// Starts what is ready in the phase, at most as many as may run at a time.
    pub(super) async fn start_tasks(
        &self,
        connection: &mut PgConnection,
        project: &mut Locked,
        cap: i32,
    ) -> Result<Started, StoreError> {
        let room = cap.saturating_sub(project.counts.running).min(PORTION);
        if room <= 0 {
            return Ok(Started::default());
        }
        let ready = sqlx::query_as!(
            ReadyTask,
            "select key, prompt, agent_key, timeout_seconds from project_tasks
             where project_id = $1 and is_ready and phase = $2 order by position limit $3",
            project.id.0,
            project.phase,
            i64::from(room),
        )
        .fetch_all(&mut *connection)
        .await?;
        if ready.is_empty() {
            return Ok(Started::default());
        }
        let agents = agents_of(connection, project.id).await?;
        let outputs = outputs(connection, project, &ready).await?;
        let (mut executions, mut used) = (Vec::with_capacity(ready.len()), BTreeSet::new());
        for task in &ready {
            let agent = task.agent_key.as_deref().unwrap_or(&project.agent_key);
            used.insert(agent);
            let agent =
                agents.get(agent).ok_or_else(|| StoreError::Corrupt("the agent of a task is missing".into()))?;
            let prompt = fill(&task.prompt, |key| outputs.get(key).map(String::as_str));
            let id = self.new_execution_id().await?;
            executions.push(execution(id, (project, task), agent, &prompt));
        }
        put_serve_keys(connection, project.id, &used).await?;
        insert_of_project(connection, project.id, &executions.iter().collect::<Vec<_>>()).await?;
        mark(connection, project, &ready, &executions).await?;
        metrics::executions_submitted(executions.len() as u64);
        let runnable = executions.into_iter().map(|execution| Runnable { id: execution.id, queue: execution.queue });
        Ok(Started { runnable: runnable.collect(), has_more: room == PORTION && ready.len() == PORTION as usize })
    }
}

async fn mark(
    connection: &mut PgConnection,
    project: &mut Locked,
    tasks: &[ReadyTask],
    executions: &[NewExecution],
) -> Result<(), StoreError> {
    let keys: Vec<String> = tasks.iter().map(|task| task.key.clone()).collect();
    let ids: Vec<Uuid> = executions.iter().map(|execution| execution.id.0).collect();
    sqlx::query!(
        "update project_tasks
         set status = 'running', is_ready = false, execution_id = ($3::uuid[])[array_position($2, key)],
             attempts = attempts + 1, started_at = $4, finished_at = null, failure_code = null
         where project_id = $1 and key = any ($2::text[])",
        project.id.0,
        &keys,
        &ids,
        project.now,
    )
    .execute(connection)
    .await?;
    project.counts.shift(TaskStatus::Pending, TaskStatus::Running, tasks.len());
    for (key, execution) in keys.iter().zip(executions) {
        project.note("task_started", json!({ "task": key, "execution_id": execution.id }));
    }
    Ok(())
}

/// Outputs that the prompts of tasks name, cut to what a prompt may hold.
async fn outputs(
    connection: &mut PgConnection,
    project: &Locked,
    tasks: &[ReadyTask],
) -> Result<HashMap<String, String>, StoreError> {
    let mut keys: Vec<String> = tasks.iter().flat_map(|task| named_outputs(&task.prompt)).map(str::to_owned).collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    keys.sort_unstable();
    keys.dedup();
    let tasks = sqlx::query!(
        r#"
        select key, execution_id as "execution_id!" from project_tasks
        where project_id = $1 and key = any ($2) and status = 'completed' and execution_id is not null
        "#,
        project.id.0,
        &keys,
    )
    .fetch_all(&mut *connection)
    .await?;
    let key_of: HashMap<Uuid, String> = tasks.into_iter().map(|task| (task.execution_id, task.key)).collect();
    let executions: Vec<Uuid> = key_of.keys().copied().collect();
    // One character more than is kept, so that what is cut says so.
    let texts = texts_of(connection, &executions, MAX_OUTPUT_BYTES + 1).await?;
    let output = |(execution, text): (Uuid, String)| {
        Some((key_of.get(&execution)?.clone(), cut(&text, MAX_OUTPUT_BYTES).into_owned()))
    };
    Ok(texts.into_iter().filter_map(output).collect())
}

fn execution(
    id: ExecutionId,
    (project, task): (&Locked, &ReadyTask),
    agent: &ProjectAgent,
    prompt: &str,
) -> NewExecution {
    let own = task.timeout_seconds.map_or(MAX_DEADLINE, |seconds| Duration::from_secs(seconds.unsigned_abs().into()));
    let left = project.deadline_at.map(|at| (at - project.now).to_std().unwrap_or_default());
    let pinned = Pinned {
        definition_key: AGENT_DEFINITION.to_owned(),
        definition_version_id: agent.definition_version_id,
        agent_key: agent.agent_key.clone(),
        agent_version_id: agent.agent_version_id,
        serve_key: agent.serve_key.clone(),
        deadline: left.map_or(own, |left| left.min(own)),
        active_timeout: Duration::from_secs(agent_definition().active_timeout_seconds.into()),
        budget: agent.budget.clone().filter(|_| !project.has_budget),
    };
    NewExecution {
        queue: project.queue.clone(),
        metadata: json!({ "project_id": project.id, "task": task.key }),
        submitted_by: project.submitted_by.map(ApiKeyId),
        ..NewExecution::of(id, project.tenant, pinned, json!({ "prompt": prompt }).to_string())
    }
}
