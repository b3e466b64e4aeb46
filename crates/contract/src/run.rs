//! The data that makes an execution a contract execution: stored as `overrides.contract`, returned with every
//! claim.

use longhaul_domain::named;
use longhaul_domain::{RuntimeProfile, retrieval::RetrievalRequest};
use longhaul_sdk::{spec::AgentOverrides, tool::ToolEffect};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::{Capability, Message, PlatformRuntime};

named!(Transport);

/// Transport of a catalogue tool.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Transport {
    /// MCP gateway.
    Mcp,
    /// Code sandbox.
    SandboxHttp,
}

impl Transport {
    /// Capability whose binding holds the tool's address.
    #[must_use]
    pub fn capability(self) -> Capability {
        match self {
            Self::Mcp => Capability::McpRuntime,
            Self::SandboxHttp => Capability::SandboxExecution,
        }
    }
}

/// A tool of the agent, pinned to its catalogue entry at submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContractTool {
    /// Id in the catalogue, for instance `tool.python_exec`.
    pub tool_ref: String,
    /// Name that the model calls, for instance `python_exec`.
    pub tool_name: String,
    /// Description for the model.
    pub description: String,
    pub transport: Transport,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// Object with `timeout_seconds` and further settings passed to the tool's service.
    pub safety_policy: Value,
    /// Effect of running the tool twice.
    pub effect: ToolEffect,
}

/// Contract data of one execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContractRun {
    /// Agent as requested, without a version.
    pub agent_ref: String,
    /// Version of the agent, as the record shows it: `v1`.
    pub agent_version: String,
    pub runtime_profile: RuntimeProfile,
    /// Id of the requesting user, if the caller stated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_user_id: Option<i64>,
    /// Role stated by the caller, in lower case.
    pub requested_by_role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// `X-Request-Id` of the caller, or a generated one.
    pub request_id: String,
    /// Managed model that the caller requested, or the agent's default. If `None`, the binding's default is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Normalised retrieval request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval: Option<RetrievalRequest>,
    /// Tools of the agent. The run checks that their capabilities are bound before its first request.
    #[serde(default)]
    pub tools: Vec<ContractTool>,
    /// Text that the agent puts before retrieved references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval_context: Option<String>,
    /// True if a client follows the execution. Statuses are published only then.
    #[serde(default)]
    pub stream: bool,
    /// True if the agent opted in to retries.
    #[serde(default)]
    pub retries: bool,
    /// Platform snapshot. Its secrets are references or sealed.
    #[serde(default)]
    pub platform_runtime: PlatformRuntime,
}

impl ContractRun {
    /// Reads the run from `overrides`; `None` for an ordinary execution.
    ///
    /// # Errors
    /// Fails if `overrides.contract` is malformed.
    pub fn of(overrides: &AgentOverrides) -> Result<Option<Self>, serde_json::Error> {
        overrides.contract.as_ref().map(Self::deserialize).transpose()
    }

    /// Returns the overrides to store.
    ///
    /// # Errors
    /// Fails if the run cannot be serialized, which does not happen.
    pub fn overrides(&self) -> Result<AgentOverrides, serde_json::Error> {
        Ok(AgentOverrides { contract: Some(serde_json::to_value(self)?), ..AgentOverrides::default() })
    }

    /// Returns the fixed answer for a run with neither messages nor retrieval, which needs no model.
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
