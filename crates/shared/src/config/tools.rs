//! `[tools]`: limits of the built-in tools, and permissions of tool servers.

use std::{collections::BTreeMap, net::IpAddr};

use longhaul_sdk::spec::McpServerSpec;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::{Rules, secret::references, units};
use crate::{addresses::is_public, domain::TenantId};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ToolsConfig {
    pub fetch_url: FetchUrlConfig,
    /// Concurrent calls per process, by tool name.
    #[serde(default)]
    pub limits: BTreeMap<String, usize>,
    pub mcp: McpConfig,
}

/// Permissions of agents that configure tool servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct McpConfig {
    pub stdio: AllowedAgents,
    /// Agents whose servers may be in private networks.
    pub private_addresses: AllowedAgents,
    /// Variables that a tenant's own agents may refer to.
    #[serde(deserialize_with = "units::list::deserialize")]
    pub secret_variables: Vec<String>,
}

/// A tool server setting that is refused for this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedServer<'a> {
    /// The server is started by a command.
    Command {
        /// Name of the server.
        server: &'a str,
    },
    /// A header or the environment of the server refers to a variable of the worker.
    Variable {
        /// Name of the server.
        server: &'a str,
        name: &'a str,
    },
    /// The server is in a private network.
    Address {
        /// Name of the server.
        server: &'a str,
        address: IpAddr,
    },
}

impl McpConfig {
    /// Returns the first setting that an agent of this owner may not have. An `owner` of `None` is an agent shared
    /// by all tenants. `stdio = any` permits every variable, because a command could read them anyway.
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
            let address = spec.url.as_deref().and_then(literal_address);
            if let Some(address) = address.filter(|address| !is_public(*address) && !self.may_reach_private(owner)) {
                return Some(RefusedServer::Address { server, address });
            }
            let values = spec.headers.values().chain(spec.env.values());
            let name = values.flat_map(|value| references(value)).find(|name| !self.may_refer_to(owner, name))?;
            Some(RefusedServer::Variable { server, name })
        })
    }

    /// Returns true if the servers of an agent of this owner may be in private networks. Hostnames are checked
    /// against the addresses they resolve to, at resolution.
    #[must_use]
    pub fn may_reach_private(&self, owner: Option<TenantId>) -> bool {
        self.private_addresses.permits(owner) || self.stdio.permits(owner)
    }

    fn may_refer_to(&self, owner: Option<TenantId>, name: &str) -> bool {
        owner.is_none()
            || self.stdio == AllowedAgents::Any
            || self.secret_variables.iter().any(|allowed| allowed == name)
    }
}

/// Returns the host of a URL if it is an IP address.
fn literal_address(url: &str) -> Option<IpAddr> {
    match Url::parse(url).ok()?.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

/// Agents that are granted a permission which reaches into the worker's machine or network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowedAgents {
    /// All agents, including a tenant's own.
    Any,
    /// Only agents shared by all tenants, which operators apply.
    #[default]
    AppliedOnly,
    /// No agents.
    Off,
}

impl AllowedAgents {
    /// Returns true if an agent of this owner has the permission. An `owner` of `None` is an agent shared by all
    /// tenants.
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
