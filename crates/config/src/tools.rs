//! `[tools]`: limits of the built-in tools, and permissions of tool servers.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use longhaul_sdk::spec::McpServerSpec;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::{Rules, units};
use longhaul_domain::{TenantId, addresses::is_public, secret_reference::references};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ToolsConfig {
    pub fetch_url: FetchUrlConfig,
    pub web_search: WebSearchConfig,
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

/// The service behind the tool `web_search`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct WebSearchConfig {
    pub backend: WebSearchBackend,
    #[serde(with = "units::url_or_nothing")]
    pub url: Option<String>,
    #[serde(with = "units::secret")]
    pub api_key: Option<SecretString>,
    /// Tool of the MCP server.
    #[serde(with = "units::text")]
    pub mcp_tool: Option<String>,
    /// Argument of that tool that takes the query.
    pub mcp_query_argument: String,
    /// Argument of that tool that takes the number of results, if it has one.
    #[serde(with = "units::text")]
    pub mcp_count_argument: Option<String>,
    pub allow_private_addresses: bool,
    #[serde(rename = "timeout_seconds", with = "units::seconds")]
    pub timeout: Duration,
    pub max_results: u32,
    pub max_bytes: u32,
}

/// Kind of the service that searches the web.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WebSearchBackend {
    /// None: agents with the tool are refused.
    Off,
    /// The Brave Search API.
    Brave,
    /// A SearXNG server with the output format `json`.
    Searxng,
    /// A tool of an MCP server.
    Mcp,
}

impl WebSearchConfig {
    fn check(&self, rules: &mut Rules) {
        let is_url = |text: &str| Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        rules.require(self.url.as_deref().is_none_or(is_url), "tools.web_search.url must be an http or https URL");
        match self.backend {
            WebSearchBackend::Off => {}
            WebSearchBackend::Brave => rules.require(
                self.api_key.is_some(),
                "tools.web_search.api_key must be set when tools.web_search.backend is brave",
            ),
            WebSearchBackend::Searxng => rules.require(
                self.url.is_some(),
                "tools.web_search.url must be set when tools.web_search.backend is searxng",
            ),
            WebSearchBackend::Mcp => {
                rules.require(
                    self.url.is_some() && self.mcp_tool.is_some() && !self.mcp_query_argument.is_empty(),
                    "tools.web_search.url, mcp_tool and mcp_query_argument must be set when tools.web_search.backend \
                     is mcp",
                );
                // The tool server's connection resolves the reference itself and hides its value from all output.
                let is_reference = |key: &SecretString| references(key.expose_secret()).next().is_some();
                rules.require(
                    self.api_key.as_ref().is_none_or(is_reference),
                    "tools.web_search.api_key must be a reference such as env://NAME when tools.web_search.backend is \
                     mcp",
                );
            }
        }
        rules.positive("tools.web_search.timeout_seconds", self.timeout);
        rules.require((1..=50).contains(&self.max_results), "tools.web_search.max_results must be 1 to 50");
        rules.require(
            (1..=64 << 20).contains(&self.max_bytes),
            "tools.web_search.max_bytes must be 1 to 64 MiB: an answer is held in memory",
        );
    }
}

impl ToolsConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        self.web_search.check(rules);
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
