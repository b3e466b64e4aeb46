//! The record of an agent: model, prompts, tools, limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BudgetSpec, CallSettings, CallerToolSpec, ConcurrencySpec, InstancesSpec, KEY, LatentToolSpec, McpServerSpec,
    MemorySpec, NAME, SERVER_NAME, SKILL_NAME, SubAgentGrant, ToolRef, ToolSettings,
};
use crate::{approvals::ApprovalsSpec, model::ModelSpec};

/// A configured model with prompts, tools and limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// Unique slug.
    #[schemars(length(max = 64), regex(pattern = KEY))]
    pub key: String,
    /// Display name.
    pub name: String,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// System prompts by purpose.
    pub prompts: AgentPrompts,
    /// The agent's character and manner of speaking: begins the system prompt of its sessions. A minijinja template, as
    /// the prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub personality: Option<String>,
    /// The model and its parameters.
    #[serde(default)]
    pub model: ModelSpec,
    /// Tools by name, built in or registered on the worker, and declarations of tools that the caller runs.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub tools: Vec<ToolRef>,
    /// MCP servers by name; their tools are named `mcp__<server>__<tool>`.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32, "propertyNames" = { "pattern": SERVER_NAME, "maxLength": 64 }))]
    pub mcp_servers: BTreeMap<String, McpServerSpec>,
    /// Tools without a handler: the model writes their results itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latent_tools: Vec<LatentToolSpec>,
    /// Indexes that the agent's executions may search, in their own tenant. Adds the tool `search_dataset`; see
    /// docs/guide/retrieval.md.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(regex(pattern = "^[a-z0-9][a-z0-9._-]{0,127}$")), extend("uniqueItems" = true))]
    pub datasets: Vec<String>,
    /// Skills that the agent is offered by name and description, and loads when it needs them. Adds the tool
    /// `load_skill`; see docs/guide/skills.md.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(regex(pattern = SKILL_NAME), length(max = 64)), extend("uniqueItems" = true))]
    pub skills: Vec<String>,
    /// Memory of the agent: of its sessions and executions.
    #[serde(default, skip_serializing_if = "MemorySpec::is_default")]
    pub memory: MemorySpec,
    /// Lets calls read each other's results (`†state.x`) and name the place of their own (`_outputPath`); see
    /// docs/guide/loop.md.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub references: bool,
    /// Lets calls carry a condition (`_when`). Has an effect only with `references`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conditions: bool,
    /// Lets calls name an instance (`_instance`): one plan over many items. Has an effect only with `references`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<InstancesSpec>,
    /// The calls that need a person's approval; see docs/guide/approvals.md.
    #[serde(default, skip_serializing_if = "ApprovalsSpec::is_default")]
    pub approvals: ApprovalsSpec,
    /// Limits of one execution.
    #[serde(default)]
    pub limits: AgentLimits,
    /// Limits on the number of the agent's executions that run at a time, over all definitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub concurrency: Vec<ConcurrencySpec>,
    /// Refs of the tools from the platform's catalogue that the agent has over the agent-execution contract.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(regex(pattern = NAME)))]
    pub tool_refs: Vec<String>,
    /// Managed model that the agent uses over the contract when a request names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_model_ref: Option<String>,
    /// Requirements of the agent on its environment, over the contract.
    #[serde(default, skip_serializing_if = "RuntimeConstraints::is_default")]
    pub runtime_constraints: RuntimeConstraints,
    /// Further texts of the contract.
    #[serde(default, skip_serializing_if = "RuntimePrompts::is_default")]
    pub runtime_prompts: RuntimePrompts,
    /// Lets callers without the scope `admin` fork the agent's executions with another prompt or model, although
    /// all tenants share the agent: such a fork uses the agent's tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fork_overrides: bool,
    /// Retry failures over the contract, too. Off by default, so that failure codes arrive while the caller waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contract_retries: bool,
}

/// Requirements of an agent on its environment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConstraints {
    /// Run only in the runtime profile `online`.
    pub internet_required: bool,
    /// Run only with a bound sandbox.
    pub sandbox_required: bool,
}

impl RuntimeConstraints {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Texts besides the prompts that a run over the contract uses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimePrompts {
    /// Text placed before retrieved references.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retrieval_context: Option<String>,
}

impl RuntimePrompts {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl AgentSpec {
    /// An agent with every default and no tools, like a YAML file with only a key and a prompt.
    ///
    /// ```
    /// use longhaul_sdk::{AgentSpec, spec::ToolRef};
    ///
    /// let mut agent = AgentSpec::new("bookkeeper", "You are a bookkeeper. Answer with JSON alone.");
    /// agent.tools = vec![ToolRef::Name("exchange_rate".into())];
    /// agent.limits.max_turns = 10;
    /// assert_eq!(agent.name, "bookkeeper");
    /// ```
    #[must_use]
    pub fn new(key: impl Into<String>, conversation: impl Into<String>) -> Self {
        let key = key.into();
        Self {
            name: key.clone(),
            key,
            description: None,
            prompts: AgentPrompts { conversation: conversation.into(), agentic_execution_definition: None },
            personality: None,
            model: ModelSpec::default(),
            tools: Vec::new(),
            mcp_servers: BTreeMap::new(),
            latent_tools: Vec::new(),
            datasets: Vec::new(),
            skills: Vec::new(),
            memory: MemorySpec::default(),
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
    /// Used in conversations, and in executions if there is no other.
    pub conversation: String,
    /// Used in executions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agentic_execution_definition: Option<String>,
}

/// Limits of one execution. Each has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentLimits {
    /// Maximum number of turns of one execution.
    pub max_turns: u32,
    /// Maximum number of calls of one reply; each further call is answered with an error.
    pub max_calls_per_turn: u32,
    /// Maximum number of calls that one execution runs at a time; further calls wait.
    pub max_parallel_calls: u32,
    /// Maximum size of one tool result shown to the model, in bytes.
    pub max_tool_result_bytes: u32,
    /// Maximum duration of one tool call, in seconds.
    pub tool_timeout_seconds: u32,
    /// The model's context window in tokens; a longer conversation is compressed.
    pub context_tokens: u32,
    /// Budget of one execution and everything it starts, if neither the submit nor the definition sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetSpec>,
    /// Maximum size of one value that a call writes to a path, in bytes.
    pub max_state_value_bytes: u32,
    /// Maximum total size of the values that calls of one execution write to paths, in bytes, overwritten values
    /// included.
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

/// The configuration of an agent for one purpose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentConfig {
    /// The system prompt, a minijinja template over `input`.
    pub prompt: String,
    /// The model and its parameters.
    pub model: ModelSpec,
    /// Tools by name.
    pub tools: Vec<ToolRef>,
    /// MCP servers by name.
    pub mcp_servers: BTreeMap<String, McpServerSpec>,
    /// Tools without a handler.
    #[serde(default)]
    pub latent_tools: Vec<LatentToolSpec>,
    /// Indexes that the agent may search.
    #[serde(default)]
    pub datasets: Vec<String>,
    /// Skills that the agent may load.
    #[serde(default)]
    pub skills: Vec<String>,
    /// What the agent remembers.
    #[serde(default)]
    pub memory: MemorySpec,
    /// True if calls may read each other's results.
    #[serde(default)]
    pub references: bool,
    /// True if calls may carry a condition.
    #[serde(default)]
    pub conditions: bool,
    /// Set if calls may name an instance.
    #[serde(default)]
    pub instances: Option<InstancesSpec>,
    /// The calls that need a person's approval.
    #[serde(default)]
    pub approvals: ApprovalsSpec,
    /// Limits of one execution.
    pub limits: AgentLimits,
}

impl AgentConfig {
    /// Returns the settings for calls of `tool`. Name a tool of an MCP server in full: `mcp__<server>__<tool>`.
    ///
    /// ```
    /// use longhaul_sdk::{AgentConfigProvider, AgentSpec, ConfigType};
    /// use serde_json::json;
    ///
    /// let agent: AgentSpec = serde_json::from_value(json!({
    ///     "key": "bookkeeper",
    ///     "name": "Bookkeeper",
    ///     "prompts": {"conversation": "You are a bookkeeper."},
    ///     "tools": ["exchange_rate", {"name": "pay", "concurrency": 1}],
    ///     "mcp_servers": {"bank": {"url": "https://bank.example", "calls": {"balance": {"concurrency": 4}}}},
    /// }))?;
    /// let config = agent.config(ConfigType::Conversation);
    /// assert_eq!(config.call_settings("pay").concurrency, Some(1));
    /// assert_eq!(config.call_settings("mcp__bank__balance").concurrency, Some(4));
    /// assert_eq!(config.call_settings("exchange_rate").concurrency, None);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
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
    /// Returns this configuration with `overrides` applied.
    ///
    /// ```
    /// use longhaul_sdk::{AgentConfigProvider, AgentSpec, ConfigType, spec::AgentOverrides};
    ///
    /// let config = AgentSpec::new("bookkeeper", "You are a bookkeeper.").config(ConfigType::Conversation);
    /// let model = config.model.clone();
    /// let forked = config.with(AgentOverrides { prompt: Some("You are an auditor.".into()), ..Default::default() });
    /// assert_eq!((forked.prompt.as_str(), forked.model), ("You are an auditor.", model));
    /// ```
    #[must_use]
    pub fn with(self, overrides: AgentOverrides) -> Self {
        let mut tools = self.tools;
        tools.extend(overrides.caller_tools.into_iter().map(ToolRef::Caller));
        Self {
            prompt: overrides.prompt.unwrap_or(self.prompt),
            model: overrides.model.unwrap_or(self.model),
            tools,
            ..self
        }
    }
}

/// The differences of one execution from its agent, as set by its submit or by a fork.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentOverrides {
    /// The system prompt, a minijinja template over `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The model and its parameters; replaces all of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// Further tools, whose calls the caller runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caller_tools: Vec<CallerToolSpec>,
    /// What the parent of a sub-agent gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_agent: Option<SubAgentGrant>,
    /// Settings of an execution of the agent-execution contract; read by `longhaul-domain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<serde_json::Value>,
    /// Settings of an execution that came over a wire of other clients; read by `longhaul-domain` (`WireRun`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<serde_json::Value>,
}
