//! `[tools]`: limits of the built-in tools, and who may start tool servers.

use std::collections::BTreeMap;

use longhaul_sdk::spec::McpServerSpec;
use serde::{Deserialize, Serialize};

use super::{Rules, secret::references, units};
use crate::domain::TenantId;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ToolsConfig {
    pub fetch_url: FetchUrlConfig,
    /// Calls of a tool that one process runs at a time, by its name.
    #[serde(default)]
    pub limits: BTreeMap<String, usize>,
    pub mcp: McpConfig,
}

/// What agents may say of tool servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct McpConfig {
    pub stdio: StdioServers,
    /// The variables that a tenant's own agents may refer to.
    #[serde(deserialize_with = "units::list::deserialize")]
    pub secret_variables: Vec<String>,
}

/// What an agent may not say of a tool server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedServer<'a> {
    /// It is started by a command.
    Command {
        /// The server.
        server: &'a str,
    },
    /// A header, or its environment, is to hold a variable of the worker.
    Variable {
        /// The server.
        server: &'a str,
        /// The variable.
        name: &'a str,
    },
}

impl McpConfig {
    /// The first thing that an agent of this owner may not; nobody's own is shared by all tenants. Whoever may start commands has the worker's environment
    /// anyway.
    #[must_use]
    pub fn refuses<'a>(
        &self,
        owner: Option<TenantId>,
        servers: &'a BTreeMap<String, McpServerSpec>,
    ) -> Option<RefusedServer<'a>> {
        servers.iter().find_map(|(server, spec)| {
            if !spec.command.is_empty() && !self.stdio.permits(owner) {
                return Some(RefusedServer::Command { server });
            }
            let values = spec.headers.values().chain(spec.env.values());
            let name = values.flat_map(|value| references(value)).find(|name| !self.may_refer_to(owner, name))?;
            Some(RefusedServer::Variable { server, name })
        })
    }

    fn may_refer_to(&self, owner: Option<TenantId>, name: &str) -> bool {
        owner.is_none()
            || self.stdio == StdioServers::Any
            || self.secret_variables.iter().any(|allowed| allowed == name)
    }
}

/// Whose agents may name a command that starts a tool server. It runs on the worker's machine, as the worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StdioServers {
    /// Everybody's, a tenant's own included.
    Any,
    /// Those that all tenants share, which operators apply.
    #[default]
    AppliedOnly,
    /// Nobody's.
    Off,
}

impl StdioServers {
    /// Whether an agent of this owner may; nobody's own is shared by all tenants.
    #[must_use]
    pub fn permits(self, owner: Option<TenantId>) -> bool {
        match self {
            Self::Any => true,
            Self::AppliedOnly => owner.is_none(),
            Self::Off => false,
        }
    }
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct FetchUrlConfig {
    pub allow_private_addresses: bool,
    pub max_bytes: u32,
}

impl ToolsConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(
            (1..=64 << 20).contains(&self.fetch_url.max_bytes),
            "tools.fetch_url.max_bytes must be 1 to 64 MiB: an answer is held in memory",
        );
        for (tool, limit) in &self.limits {
            rules.require(
                (1..=1_000_000).contains(limit),
                &format!("tools.limits.{tool} must be 1 to 1,000,000 calls at a time"),
            );
        }
    }
}
