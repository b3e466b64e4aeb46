//! Cache of agents by their pinned versions.

use std::sync::Arc;

use longhaul_domain::{AgentVersionId, DefinitionVersionId};
use longhaul_sdk::ConfigType;
use quick_cache::sync::Cache;

use crate::Agent;

/// Maximum cached agents.
const MAX_AGENTS: usize = 1_000;

/// The versions from which an agent is prepared, and its kind of use.
pub(super) type Versions = (DefinitionVersionId, AgentVersionId, ConfigType);

/// Agents that all attempts of a process share.
#[derive(Debug)]
pub struct PreparedAgents(Cache<Versions, Arc<Agent>>);

impl Default for PreparedAgents {
    fn default() -> Self {
        Self(Cache::new(MAX_AGENTS))
    }
}

impl PreparedAgents {
    pub(super) fn get(&self, versions: &Versions) -> Option<Arc<Agent>> {
        self.0.get(versions)
    }

    pub(super) fn insert(&self, versions: Versions, agent: Arc<Agent>) {
        self.0.insert(versions, agent);
    }
}
