//! What every attempt of a worker shares.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use longhaul_sdk::RegisteredDefinition;
use longhaul_shared::{
    config::{BudgetConfig, McpConfig},
    domain::{AgentVersionId, DefinitionVersionId, Prices},
    queue::producer::WakeupPublisher,
    store::{Store, StoreError, definitions::PinnedVersions, lease_writer::LeaseWriter, shares::TenantShares},
};
use tokio::sync::Semaphore;

use crate::{
    agent::{orchestrator::permits::CallPermits, prepared::PreparedAgents},
    contract::Platform,
    llm::{health::Health, registry::Models},
    probe::Probe,
    tools::ToolSources,
    validators::ValidatorRegistry,
};

/// Versions kept in memory; they are immutable.
const MAX_VERSIONS: usize = 10_000;

/// What attempts share, whatever identity the process has.
#[derive(Debug)]
pub(crate) struct Deps {
    pub(crate) store: Store,
    pub(crate) publisher: WakeupPublisher,
    pub(crate) models: Models,
    pub(crate) health: Arc<Health>,
    pub(crate) prices: Prices,
    /// Reply limits of calls under a budget.
    pub(crate) budget: BudgetConfig,
    pub(crate) tools: ToolSources,
    /// What contract runs share.
    pub(crate) platform: Platform,
    pub(crate) validators: ValidatorRegistry,
    /// The installation's own organisation, whose agents rules mean by name.
    pub(crate) own_org: String,
    /// What agents may say of tool servers.
    pub(crate) tool_servers: McpConfig,
    pub(crate) definitions: HashMap<String, RegisteredDefinition>,
    pub(crate) versions: Versions,
    pub(crate) agents: PreparedAgents,
    /// What tenants used lately: claims are ordered by it.
    pub(crate) shares: Arc<TenantShares>,
    pub(crate) probe: Probe,
    /// The newest journals that attempts go on from.
    pub(crate) journal_format: u8,
    /// Journals that may load at once, so that a mass takeover does not load thousands (core-rules 4).
    pub(crate) loading: Semaphore,
    /// Tool calls that may run at once.
    pub(crate) call_permits: CallPermits,
}

/// What attempts of one identity share.
#[derive(Debug, Clone)]
pub(crate) struct AttemptDeps {
    pub(crate) shared: Arc<Deps>,
    pub(crate) writer: LeaseWriter,
    /// Attempts that have run and are only to be written down, beside as many that run: one more waits with its permit.
    pub(crate) concluding: Arc<Semaphore>,
}

/// Definition and agent versions by id, bounded.
#[derive(Debug, Default)]
pub(crate) struct Versions(Mutex<HashMap<(DefinitionVersionId, AgentVersionId), Arc<PinnedVersions>>>);

impl Versions {
    pub(crate) async fn get(
        &self,
        store: &Store,
        definition: DefinitionVersionId,
        agent: AgentVersionId,
    ) -> Result<Arc<PinnedVersions>, StoreError> {
        let key = (definition, agent);
        if let Some(pinned) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(pinned.clone());
        }
        let pinned = Arc::new(store.load_versions(definition, agent).await?);
        let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if versions.len() >= MAX_VERSIONS {
            versions.clear();
        }
        versions.insert(key, pinned.clone());
        Ok(pinned)
    }
}
