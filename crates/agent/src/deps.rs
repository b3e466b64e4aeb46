//! Dependencies that all agents of a process share.

use std::sync::Arc;

use longhaul_llm::{health::Health, registry::Models};
use longhaul_queue::producer::WakeupPublisher;
use longhaul_shared::{
    config::{BudgetConfig, McpConfig},
    domain::Prices,
};
use longhaul_store::Store;
use longhaul_tools::ToolSources;

use super::{orchestrator::permits::CallPermits, prepared::PreparedAgents, probe::Probe};

/// Dependencies of the agent loop and its journal.
#[derive(Debug)]
pub struct AgentDeps {
    pub store: Store,
    pub publisher: WakeupPublisher,
    pub models: Models,
    pub health: Arc<Health>,
    pub prices: Prices,
    /// Reply limits of calls under a budget.
    pub budget: BudgetConfig,
    pub tools: ToolSources,
    /// The installation's own organisation. Policy rules that name an agent mean agents of this organisation.
    pub own_org: String,
    /// Limits on the tool servers that agents may declare.
    pub tool_servers: McpConfig,
    pub agents: PreparedAgents,
    pub probe: Probe,
    /// Limits concurrent tool calls.
    pub call_permits: CallPermits,
}
