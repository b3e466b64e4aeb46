//! What an agent says: model, prompts, tools, limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BudgetSpec, CallSettings, ConcurrencySpec, InstancesSpec, LatentToolSpec, McpServerSpec, ToolRef, ToolSettings,
};
use crate::{approvals::ApprovalsSpec, model::ModelSpec};

/// A configured model with prompts, tools and limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// Unique slug; `[a-z0-9._-]{1,64}`.
    pub key: String,
    /// Label for people.
    pub name: String,
    /// Longer text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// System prompts by purpose.
    pub prompts: AgentPrompts,
    /// The model and its parameters.
    #[serde(default)]
    pub model: ModelSpec,
    /// Tools by name, built in or registered on the worker.
    #[serde(default)]
    pub tools: Vec<ToolRef>,
    /// Tool servers spoken to over MCP; their tools are named `mcp__<server>__<tool>`.
    #[serde(default)]
    pub mcp_servers: BTreeMap<String, McpServerSpec>,
    /// Tools without a handler: the model writes their results itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latent_tools: Vec<LatentToolSpec>,
    /// Indexes that its executions may search, those of the tenant that they run for: gives it the tool `search_dataset`; see
    /// docs/retrieval.md.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<String>,
    /// Calls may read each other's results (`†state.x`) and say where theirs go (`_outputPath`); see docs/loop.md.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub references: bool,
    /// Calls may carry a condition (`_when`). Has an effect only with `references`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conditions: bool,
    /// Calls may name an instance (`_instance`): one plan over many items. Has an effect only with `references`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<InstancesSpec>,
    /// Which calls a person must allow; see docs/approvals.md.
    #[serde(default, skip_serializing_if = "ApprovalsSpec::is_default")]
    pub approvals: ApprovalsSpec,
    /// Caps on what one execution may use.
    #[serde(default)]
    pub limits: AgentLimits,
    /// How many of its executions may run at a time, whichever definition they are of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concurrency: Vec<ConcurrencySpec>,
    /// Tools of the platform's catalogue, by their refs: what it has over the agent-execution contract.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_refs: Vec<String>,
    /// The managed model it is asked for over the contract, where a request names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_model_ref: Option<String>,
    /// What it needs around it, over the contract.
    #[serde(default, skip_serializing_if = "RuntimeConstraints::is_default")]
    pub runtime_constraints: RuntimeConstraints,
    /// Further texts of the contract.
    #[serde(default, skip_serializing_if = "RuntimePrompts::is_default")]
    pub runtime_prompts: RuntimePrompts,
    /// Callers without the scope `admin` may fork its executions with another prompt or model, although all tenants share it: it then
    /// uses the tools of this agent for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fork_overrides: bool,
    /// Whether failures are retried over the contract, too. They are not by default, so that codes arrive while the caller waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contract_retries: bool,
}

/// What an agent needs around it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConstraints {
    /// It runs in the runtime profile `online` alone.
    pub internet_required: bool,
    /// It runs only where a sandbox is bound.
    pub sandbox_required: bool,
}

impl RuntimeConstraints {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Texts that a run over the contract uses beside the prompts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimePrompts {
    /// Stands before retrieved references.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retrieval_context: Option<String>,
}

impl RuntimePrompts {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl AgentSpec {
    /// An agent with every default and no tools, as a YAML file with nothing but its key and prompt would be.
    #[must_use]
    pub fn new(key: impl Into<String>, conversation: impl Into<String>) -> Self {
        let key = key.into();
        Self {
            name: key.clone(),
            key,
            description: None,
            prompts: AgentPrompts { conversation: conversation.into(), agentic_execution_definition: None },
            model: ModelSpec::default(),
            tools: Vec::new(),
            mcp_servers: BTreeMap::new(),
            latent_tools: Vec::new(),
            datasets: Vec::new(),
            references: false,
            conditions: false,
            instances: None,
            approvals: ApprovalsSpec::default(),
            limits: AgentLimits::default(),
            concurrency: Vec::new(),
            tool_refs: Vec::new(),
            default_model_ref: None,
            runtime_constraints: RuntimeConstraints::default(),
            runtime_prompts: RuntimePrompts::default(),
            fork_overrides: false,
            contract_retries: false,
        }
    }
}

/// System prompts, minijinja templates over `input`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentPrompts {
    /// Used in conversations, and in executions when there is no other.
    pub conversation: String,
    /// Used in executions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agentic_execution_definition: Option<String>,
}

/// Caps on what one execution may use. Each has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentLimits {
    /// Turns of one execution.
    pub max_turns: u32,
    /// Calls of one reply; the ones beyond are answered with an error.
    pub max_calls_per_turn: u32,
    /// Calls of one execution that run at a time; the others wait for one to end.
    pub max_parallel_calls: u32,
    /// Bytes of one tool result shown to the model.
    pub max_tool_result_bytes: u32,
    /// Seconds one tool call may take.
    pub tool_timeout_seconds: u32,
    /// The model's window in tokens; a longer conversation is compressed.
    pub context_tokens: u32,
    /// What one execution and everything it starts may spend, where neither the submit nor the definition says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetSpec>,
    /// Bytes of one value that a call writes to a path.
    pub max_state_value_bytes: u32,
    /// Bytes of all values that calls of one execution write to paths, overwritten ones included.
    pub max_state_bytes: u32,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            max_turns: 50,
            max_calls_per_turn: 64,
            max_parallel_calls: 16,
            max_tool_result_bytes: 65_536,
            tool_timeout_seconds: 60,
            context_tokens: 128_000,
            budget: None,
            max_state_value_bytes: 1 << 20,
            max_state_bytes: 16 << 20,
        }
    }
}

/// What an agent is for one purpose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentConfig {
    /// The system prompt, a minijinja template over `input`.
    pub prompt: String,
    /// The model and its parameters.
    pub model: ModelSpec,
    /// Tools by name.
    pub tools: Vec<ToolRef>,
    /// Tool servers.
    pub mcp_servers: BTreeMap<String, McpServerSpec>,
    /// Tools without a handler.
    #[serde(default)]
    pub latent_tools: Vec<LatentToolSpec>,
    /// Indexes it may search.
    #[serde(default)]
    pub datasets: Vec<String>,
    /// Whether calls may read each other's results.
    #[serde(default)]
    pub references: bool,
    /// Whether calls may carry a condition.
    #[serde(default)]
    pub conditions: bool,
    /// Whether calls may name an instance.
    #[serde(default)]
    pub instances: Option<InstancesSpec>,
    /// Which calls a person must allow.
    #[serde(default)]
    pub approvals: ApprovalsSpec,
    /// Caps.
    pub limits: AgentLimits,
}

impl AgentConfig {
    /// How calls of `tool` are run; a tool of a server is given by its full name, `mcp__<server>__<tool>`.
    #[must_use]
    pub fn call_settings(&self, tool: &str) -> CallSettings {
        if let Some(own) = self.tools.iter().rfind(|reference| reference.name() == tool) {
            return own.settings().map(ToolSettings::calls).unwrap_or_default();
        }
        let of_server = |(server, spec): (&String, &McpServerSpec)| {
            let name = tool.strip_prefix("mcp__")?.strip_prefix(server.as_str())?.strip_prefix("__")?;
            spec.calls.get(name).copied()
        };
        self.mcp_servers.iter().find_map(of_server).unwrap_or_default()
    }
}

impl AgentConfig {
    /// The same with what `overrides` says.
    #[must_use]
    pub fn with(self, overrides: AgentOverrides) -> Self {
        Self { prompt: overrides.prompt.unwrap_or(self.prompt), model: overrides.model.unwrap_or(self.model), ..self }
    }
}

/// What one execution does differently from its agent: a fork says so.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentOverrides {
    /// The system prompt, a minijinja template over `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The model and its parameters, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// What makes it an execution of the agent-execution contract; read by `longhaul-shared`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<serde_json::Value>,
}
