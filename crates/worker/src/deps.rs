//! Dependencies that all attempts of a worker share.

use std::{collections::HashMap, sync::Arc};

use longhaul_agent::{deps::AgentDeps, probe::Probe, validators::ValidatorRegistry};
use longhaul_config::MemoryConfig;
use longhaul_domain::{AgentVersionId, DefinitionVersionId};
use longhaul_llm::health::Health;
use longhaul_queue::producer::WakeupPublisher;
use longhaul_sdk::RegisteredDefinition;
use longhaul_store::{
    Store, StoreError,
    catalogue::definitions::PinnedVersions,
    fleet::{lease_writer::LeaseWriter, shares::TenantShares},
};
use quick_cache::sync::Cache;
use tokio::sync::{Semaphore, watch};

use crate::{
    contract::Platform,
    runtime::{held_leases::HeldLeases, reactions::reactors::Reactors},
};

/// Pairs of definition and agent versions cached in memory. Versions are immutable, so entries never go stale.
const MAX_VERSIONS: usize = 10_000;

/// Dependencies of the process. They outlive a worker id: a fenced worker registers again under a new one.
#[derive(Debug)]
pub(crate) struct Deps {
    pub(crate) store: Store,
    pub(crate) publisher: WakeupPublisher,
    pub(crate) health: Arc<Health>,
    pub(crate) probe: Probe,
    /// Dependencies of the agent loop.
    pub(crate) agent: Arc<AgentDeps>,
    /// Bindings and endpoints of contract executions.
    pub(crate) platform: Arc<Platform>,
    pub(crate) memory: MemoryConfig,
    pub(crate) validators: ValidatorRegistry,
    pub(crate) definitions: HashMap<String, RegisteredDefinition>,
    pub(crate) versions: Versions,
    /// Recent usage by tenant, which orders claims.
    pub(crate) shares: Arc<TenantShares>,
    /// The newest journal format that attempts can resume.
    pub(crate) journal_format: u8,
    /// Projects of one tenant that may run at a time.
    pub(crate) max_running_projects: u32,
    /// Told when this process has ended something that a reaction may follow.
    pub(crate) ended: watch::Sender<()>,
    /// Limits the reactions at a time: the pool has few connections.
    pub(crate) reactors: Reactors,
    /// Limits concurrent journal loads, so that a mass takeover does not load thousands at once (core-rules 4).
    pub(crate) loading: Semaphore,
}

/// Dependencies of attempts under one worker id.
#[derive(Debug, Clone)]
pub(crate) struct AttemptDeps {
    pub(crate) shared: Arc<Deps>,
    pub(crate) writer: LeaseWriter,
    pub(crate) held: Arc<HeldLeases>,
    /// Limits attempts that have run and are being recorded. An attempt without a slot here keeps its run permit.
    pub(crate) concluding: Arc<Semaphore>,
}

/// Bounded cache of definition and agent versions by id.
#[derive(Debug)]
pub(crate) struct Versions(Cache<(DefinitionVersionId, AgentVersionId), Arc<PinnedVersions>>);

impl Default for Versions {
    fn default() -> Self {
        Self(Cache::new(MAX_VERSIONS))
    }
}

impl Versions {
    pub(crate) async fn get(
        &self,
        store: &Store,
        definition: DefinitionVersionId,
        agent: AgentVersionId,
    ) -> Result<Arc<PinnedVersions>, StoreError> {
        let key = (definition, agent);
        if let Some(pinned) = self.0.get(&key) {
            return Ok(pinned);
        }
        let pinned = Arc::new(Box::pin(store.load_versions(definition, agent)).await?);
        self.0.insert(key, pinned.clone());
        Ok(pinned)
    }
}
