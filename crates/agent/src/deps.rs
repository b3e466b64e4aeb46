//! Dependencies that all agents of a process share.

use std::{fmt, sync::Arc};

use longhaul_browser::Browsers;
use longhaul_config::{BudgetConfig, McpConfig};
use longhaul_domain::Prices;
use longhaul_files::Files;
use longhaul_llm::{health::Health, registry::Models};
use longhaul_queue::producer::WakeupPublisher;
use longhaul_sdk::context::ContextProvider;
use longhaul_store::Store;
use longhaul_tools::ToolSources;

use super::{
    orchestrator::permits::CallPermits, prepare::cache::PreparedAgents, probe::Probe, sub_agents::slots::SubAgentSlots,
    workspace::sandbox::SandboxClient,
};

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
    pub sub_agents: SubAgentSlots,
    pub tools: ToolSources,
    /// The installation's own organisation. Policy rules that name an agent mean agents of this organisation.
    pub own_org: String,
    /// Limits on the tool servers that agents may declare.
    pub tool_servers: McpConfig,
    pub agents: PreparedAgents,
    pub probe: Probe,
    /// The bytes of files, and the memory for them.
    pub files: Files,
    /// The sandbox of the tools of workspaces; `None` if the worker has none.
    pub workspaces: Option<SandboxClient>,
    /// True unless the deployment has switched memory off.
    pub has_memory: bool,
    /// The browsers of the tools `browser_*`; `None` if the worker has none.
    pub browsers: Option<Browsers>,
    /// Limits concurrent tool calls.
    pub call_permits: CallPermits,
    pub context: Context,
}

/// Memory and projects of conversations, if the application has any.
#[derive(Clone, Default)]
pub struct Context(pub Option<Arc<dyn ContextProvider>>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.0.is_some()).finish()
    }
}
