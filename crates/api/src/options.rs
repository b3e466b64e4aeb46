//! Settings of the API.

use std::collections::BTreeMap;

use longhaul_config::{McpConfig, WireModels};
use longhaul_page::PageOptions;
use longhaul_sdk::spec::ModelSpec;

use crate::{remote::LeaseTimes, routes::contract::options::ContractOptions};

#[derive(Debug, Clone)]
pub struct ApiOptions {
    pub page: PageOptions,
    /// Maximum number of event streams and held submits per process; beyond it the API answers 503.
    pub max_streams: usize,
    /// Maximum number of open connections per process; further ones wait in the listen queue.
    pub max_connections: usize,
    /// Sends the page's cookies over TLS only.
    pub secure_cookies: bool,
    /// Rules for the tool servers that agents may use.
    pub tool_servers: McpConfig,
    /// True if workers have a search service: agents may have the tool `web_search`.
    pub web_search: bool,
    /// True if the workers have a sandbox for the tools of workspaces.
    pub has_sandbox: bool,
    /// True if the workers have a browser for the tools `browser_*`.
    pub has_browser: bool,
    pub contract: ContractOptions,
    /// Sessions of one tenant and agent that may run at a time; 0 is unlimited.
    pub max_running_sessions: u32,
    /// Schedules of one tenant.
    pub max_schedules: u32,
    /// Webhooks of one tenant.
    pub max_webhooks: u32,
    /// True if webhooks may have private addresses.
    pub private_webhooks: bool,
    /// True if the process sends mail.
    pub has_email: bool,
    /// Most projects of one tenant that run at a time.
    pub max_running_projects: u32,
    /// True if the authors of agent, definition and skills count as submitters.
    pub authors_submit: bool,
    /// Executions that one worker runs at a time.
    pub worker_concurrency: u64,
    pub wires: WireOptions,
    /// Leases of workers over HTTP, as those of all workers.
    pub leases: LeaseTimes,
}

/// Settings of the wires of other clients.
#[derive(Debug, Clone, Default)]
pub struct WireOptions {
    /// Models that requests may call by themselves, beside agents and definitions.
    pub models: WireModels,
    /// Models by the names that requests give them.
    pub aliases: BTreeMap<String, ModelSpec>,
}

impl WireOptions {
    /// True if requests may call the model of that name by itself.
    pub(crate) fn allows(&self, name: &str) -> bool {
        match self.models {
            WireModels::All => true,
            WireModels::Aliases => self.aliases.contains_key(name),
            WireModels::None => false,
        }
    }
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            page: PageOptions::default(),
            max_streams: 4_096,
            max_connections: 10_000,
            secure_cookies: false,
            tool_servers: McpConfig::default(),
            web_search: false,
            has_sandbox: false,
            has_browser: false,
            contract: ContractOptions::default(),
            max_running_sessions: 5,
            max_schedules: 1_000,
            max_webhooks: 20,
            private_webhooks: false,
            has_email: false,
            max_running_projects: 10,
            authors_submit: false,
            worker_concurrency: 1_000,
            wires: WireOptions::default(),
            leases: LeaseTimes::default(),
        }
    }
}
