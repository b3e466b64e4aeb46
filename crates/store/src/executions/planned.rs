//! The plan of a new execution: the versions that it is pinned to, what follows from them, and the defaults of the
//! rest.

use std::time::Duration;

use longhaul_domain::{
    AgentVersionId, DEFAULT_QUEUE, DefinitionVersionId, ExecutionId, ServeKey, TenantId, requirements::requirements,
    submit_limits::DEFAULT_PRIORITY,
};
use longhaul_sdk::spec::{AgentSpec, BudgetSpec, DefinitionSpec};
use serde_json::json;

use super::submit::NewExecution;
use crate::{Store, StoreError, catalogue::definitions::Version};

/// A pinned version of a definition and one of an agent, and what an execution has from them.
#[derive(Debug, Clone, PartialEq)]
pub struct Pinned {
    pub definition_key: String,
    pub definition_version_id: DefinitionVersionId,
    pub agent_key: String,
    pub agent_version_id: AgentVersionId,
    /// Requirements on a worker.
    pub serve_key: ServeKey,
    pub deadline: Duration,
    pub active_timeout: Duration,
    /// Default budget of a submit that names none.
    pub budget: Option<BudgetSpec>,
}

impl Pinned {
    /// Pins these versions; `serve_key` stands for their requirements.
    #[must_use]
    pub fn new(definition: &Version<DefinitionSpec>, agent: &Version<AgentSpec>, serve_key: ServeKey) -> Self {
        let spec = &definition.spec;
        Self {
            definition_key: spec.key.clone(),
            definition_version_id: definition.id.into(),
            agent_key: agent.spec.key.clone(),
            agent_version_id: agent.id.into(),
            serve_key,
            deadline: Duration::from_secs(spec.deadline_seconds.into()),
            active_timeout: Duration::from_secs(spec.active_timeout_seconds.into()),
            budget: spec.budget.clone().or_else(|| agent.spec.limits.budget.clone()),
        }
    }
}

impl NewExecution {
    /// An execution of `pinned` with the default queue and priority, and nothing else that a caller may choose.
    #[must_use]
    pub fn of(id: ExecutionId, tenant_id: TenantId, pinned: Pinned, input: String) -> Self {
        Self {
            id,
            tenant_id,
            definition_key: pinned.definition_key,
            definition_version_id: pinned.definition_version_id,
            agent_key: pinned.agent_key,
            agent_version_id: pinned.agent_version_id,
            queue: DEFAULT_QUEUE.to_owned(),
            serve_key: pinned.serve_key,
            priority: DEFAULT_PRIORITY,
            metadata: json!({}),
            input,
            run_at: None,
            deadline: pinned.deadline,
            active_timeout: pinned.active_timeout,
            submitted_by: None,
            traceparent: None,
            idempotency: None,
            budget: pinned.budget,
            overrides: None,
        }
    }
}

impl Store {
    /// Pins these versions for an execution, and records its requirements on workers.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn pin(
        &self,
        definition: &Version<DefinitionSpec>,
        agent: &Version<AgentSpec>,
    ) -> Result<Pinned, StoreError> {
        let needs = requirements(&definition.spec, (definition.id.into(), definition.version), &agent.spec);
        let serve_key = ServeKey::of(&needs);
        self.put_serve_key(&serve_key, &needs.into_iter().collect::<Vec<_>>()).await?;
        Ok(Pinned::new(definition, agent, serve_key))
    }
}
