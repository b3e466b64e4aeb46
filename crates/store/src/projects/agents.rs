//! Agents that the tasks of a project may name. Their versions are pinned when the project first hears of them.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_domain::{AgentVersionId, DefinitionVersionId, ProjectId, ServeKey};
use longhaul_sdk::spec::BudgetSpec;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// Most agents of one project.
pub const MAX_AGENTS: usize = 64;

/// An agent as a project runs it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectAgent {
    pub agent_key: String,
    pub agent_version_id: AgentVersionId,
    /// The built-in definition that runs it.
    pub definition_version_id: DefinitionVersionId,
    pub serve_key: ServeKey,
    /// What the serve key stands for.
    pub requirements: Vec<String>,
    /// Budget of each of its executions, if the project has none.
    pub budget: Option<BudgetSpec>,
}

/// A row of the type `project_agent`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "project_agent")]
struct AgentRow {
    agent_key: String,
    agent_version_id: Uuid,
    definition_version_id: Uuid,
    serve_key: String,
    requirements: Vec<String>,
    budget: Option<String>,
}

/// Adds agents to a project; those that it has keep their versions.
pub(super) async fn insert_agents(
    connection: &mut PgConnection,
    project: ProjectId,
    agents: &[ProjectAgent],
) -> Result<(), StoreError> {
    let row = |agent: &ProjectAgent| AgentRow {
        agent_key: agent.agent_key.clone(),
        agent_version_id: agent.agent_version_id.0,
        definition_version_id: agent.definition_version_id.0,
        serve_key: agent.serve_key.0.clone(),
        requirements: agent.requirements.clone(),
        budget: agent.budget.as_ref().and_then(|budget| serde_json::to_string(budget).ok()),
    };
    let rows: Vec<AgentRow> = agents.iter().map(row).collect();
    sqlx::query!(
        "insert into project_agents (project_id, agent_key, agent_version_id, definition_version_id, serve_key,
             requirements, budget)
         select $1, a.agent_key, a.agent_version_id, a.definition_version_id, a.serve_key, a.requirements, a.budget
         from unnest($2::project_agent[]) as a
         on conflict do nothing",
        project.0,
        &rows as _,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores the serve keys of agents again: those that no submit carried for a day are deleted.
pub(super) async fn put_serve_keys(
    connection: &mut PgConnection,
    project: ProjectId,
    agents: &BTreeSet<&str>,
) -> Result<(), StoreError> {
    let agents: Vec<String> = agents.iter().map(|&agent| agent.to_owned()).collect();
    sqlx::query!(
        "insert into serve_keys (key, requirements)
         select distinct on (serve_key) serve_key, requirements from project_agents
         where project_id = $1 and agent_key = any ($2) order by serve_key
         on conflict (key) do update set put_at = excluded.put_at
             where serve_keys.put_at < clock_timestamp() - interval '1 hour'",
        project.0,
        &agents,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The agents of a project by key.
pub(super) async fn agents_of(
    connection: &mut PgConnection,
    project: ProjectId,
) -> Result<BTreeMap<String, ProjectAgent>, StoreError> {
    let rows = sqlx::query!(
        "select agent_key, agent_version_id, definition_version_id, serve_key, requirements, budget
         from project_agents where project_id = $1",
        project.0,
    )
    .fetch_all(connection)
    .await?;
    let read = rows.into_iter().map(|row| {
        let budget = row.budget.as_deref().map(serde_json::from_str).transpose();
        let agent = ProjectAgent {
            agent_key: row.agent_key.clone(),
            agent_version_id: AgentVersionId(row.agent_version_id),
            definition_version_id: DefinitionVersionId(row.definition_version_id),
            serve_key: ServeKey(row.serve_key),
            requirements: row.requirements,
            budget: budget.map_err(|error| StoreError::Corrupt(format!("the budget of an agent: {error}")))?,
        };
        Ok((row.agent_key, agent))
    });
    read.collect()
}
