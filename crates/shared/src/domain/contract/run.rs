//! What makes an execution one of the contract: stored with it as `overrides.contract`, returned with every claim.

use longhaul_sdk::{spec::AgentOverrides, tool::ToolEffect};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Capability, Message, PlatformRuntime};
use crate::domain::{retrieval::RetrievalRequest, status::named};

named! {
    /// Whether a run may reach what is outside.
    RuntimeProfile {
        /// It may.
        Online = "online",
        /// It may not.
        Offline = "offline",
    }
}

named! {
    /// How a tool of the catalogue is reached.
    Transport {
        /// The MCP gateway.
        Mcp = "mcp",
        /// The sandbox.
        SandboxHttp = "sandbox_http",
    }
}

impl Transport {
    /// The capability whose binding says where.
    #[must_use]
    pub fn capability(self) -> Capability {
        match self {
            Self::Mcp => Capability::McpRuntime,
            Self::SandboxHttp => Capability::SandboxExecution,
        }
    }
}

impl RuntimeProfile {
    /// The profile of a run. What a request, an operator's force and the stored default say, in this order; a force to `offline`
    /// is not lifted by a request, and without any word it is `offline`.
    #[must_use]
    pub fn resolve(requested: Option<Self>, forced: Option<Self>, stored: Option<Self>) -> Self {
        match forced {
            Some(Self::Offline) => Self::Offline,
            Some(Self::Online) | None => requested.or(forced).or(stored).unwrap_or(Self::Offline),
        }
    }

    /// A word as requests and settings write it: case and surrounding space do not matter, `air_gapped` is `offline`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let word = text.trim().to_lowercase();
        Self::parse(if word == "air_gapped" { "offline" } else { &word })
    }
}

/// A tool of the agent, as the catalogue had it at the submit. The run is pinned to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContractTool {
    /// Its id in the catalogue, for instance `tool.python_exec`.
    pub tool_ref: String,
    /// The name the model calls, for instance `python_exec`.
    pub tool_name: String,
    /// What it is for, for the model.
    pub description: String,
    /// How it is reached.
    pub transport: Transport,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// An object: `timeout_seconds` and what else its service is told.
    pub safety_policy: Value,
    /// What running it twice would do.
    pub effect: ToolEffect,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContractRun {
    /// The agent as asked for, without a version.
    pub agent_ref: String,
    /// The version it runs, as the record says it: `v1`.
    pub agent_version: String,
    /// Whether it may reach what is outside.
    pub runtime_profile: RuntimeProfile,
    /// Who asked, where the caller said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_user_id: Option<i64>,
    /// As the caller said, lower-case.
    pub requested_by_role: String,
    /// The caller's organisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org_id: Option<String>,
    /// The caller's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// `X-Request-Id`, the caller's or ours.
    pub request_id: String,
    /// The managed model the caller asked for, else the agent's default; neither: the binding's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The normalised retrieval request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval: Option<RetrievalRequest>,
    /// The agent's tools. That their capabilities are bound is looked at before anything is asked.
    #[serde(default)]
    pub tools: Vec<ContractTool>,
    /// What stands before retrieved references, when the agent says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval_context: Option<String>,
    /// Whether somebody follows it: statuses are published only then.
    #[serde(default)]
    pub stream: bool,
    /// Whether its agent opted in to retries.
    #[serde(default)]
    pub retries: bool,
    /// The snapshot; secrets in it are references or sealed.
    #[serde(default)]
    pub platform_runtime: PlatformRuntime,
}

impl ContractRun {
    /// The run that `overrides` describe; `None` for an ordinary execution.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn of(overrides: &AgentOverrides) -> Result<Option<Self>, serde_json::Error> {
        overrides.contract.as_ref().map(Self::deserialize).transpose()
    }

    /// The overrides to store.
    ///
    /// # Errors
    /// It is no JSON, which none of ours is.
    pub fn overrides(&self) -> Result<AgentOverrides, serde_json::Error> {
        Ok(AgentOverrides { contract: Some(serde_json::to_value(self)?), ..AgentOverrides::default() })
    }

    /// What it answers without asking a model: the text for an input that says nothing and retrieves nothing.
    #[must_use]
    pub fn deterministic_answer(&self, messages: &[Message]) -> Option<String> {
        (messages.is_empty() && self.retrieval.is_none())
            .then(|| format!("Agent '{}' executed in {} profile", self.agent_ref, self.runtime_profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_cannot_lift_a_force_to_offline() {
        use RuntimeProfile::{Offline, Online};
        let table = [
            (None, None, None, Offline),
            (Some(Online), None, None, Online),
            (Some(Online), Some(Offline), Some(Online), Offline),
            (Some(Offline), Some(Online), Some(Online), Offline),
            (None, Some(Online), Some(Offline), Online),
            (None, None, Some(Online), Online),
        ];
        for (requested, forced, stored, expected) in table {
            assert_eq!(
                RuntimeProfile::resolve(requested, forced, stored),
                expected,
                "{requested:?} {forced:?} {stored:?}"
            );
        }
        assert_eq!(RuntimeProfile::read(" ONLINE "), Some(Online));
        assert_eq!(RuntimeProfile::read("air_gapped"), Some(Offline));
        assert_eq!(RuntimeProfile::read("moon"), None);
    }
}
