//! The records that definitions and agents are, whichever way they were written: YAML, the API, or Rust.
//!
//! They are wire types: stored, versioned by content, shown by the API. Unknown fields are refused, so that a typing error
//! in a file is an error and not a default.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{approvals::ApprovalsSpec, money::Usd, tool::ToolEffect};

/// The reserved tool that takes the final output of a definition with an output schema.
pub const SUBMIT_OUTPUT: &str = "submit_output";

pub use crate::model::{Effort, ModelSpec, OutputMode};

/// The prompt that asks the model for a failure summary when its corrections are used up.
pub const FAILURE_SUMMARY_PROMPT: &str = "You could not produce a valid answer within the allowed attempts. Explain in at \
    most 100 words, in plain language and without addressing anyone, what went wrong.";

/// What goes back to the model when a validator refuses an answer without saying why.
pub const GENERIC_FEEDBACK: &str = "The previous response was invalid. Please try again.";

/// An execution type: what can be run, with what input, and when its answer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DefinitionSpec {
    /// Unique slug; `[a-z0-9._-]{1,128}`.
    pub key: String,
    /// The agent that runs it.
    pub agent_key: String,
    /// Label for people.
    pub name: String,
    /// Longer text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the input; any object when absent.
    #[serde(default = "any_object")]
    pub input_schema: Value,
    /// JSON Schema that the answer must satisfy. Absent: any answer the validators accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The first user message, a minijinja template over `input`. Absent: the input as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Validators in order; the first failing one drives what happens.
    #[serde(default = "default_validators")]
    pub validators: Vec<ValidatorRef>,
    /// Corrections before giving up: `n` retries are up to `n + 1` validated answers.
    #[serde(default = "default_max_retries")]
    pub max_retries: u32,
    /// Codes of its own, beside the built-in ones.
    #[serde(default)]
    pub failure_codes: Vec<String>,
    /// Asks the model for the failure summary.
    #[serde(default = "default_summary_prompt")]
    pub failure_summary_prompt: String,
    /// Retries by failure class, where they differ from the defaults.
    #[serde(default)]
    pub retry: RetrySpec,
    /// The longest time workers may hold an execution, waits excluded, in seconds.
    #[serde(default = "default_active_timeout")]
    pub active_timeout_seconds: u32,
    /// The longest life of an execution, waits included, in seconds.
    #[serde(default = "default_deadline")]
    pub deadline_seconds: u32,
    /// What one execution and everything it starts may spend, where a submit says nothing; the agent's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetSpec>,
    /// Where it is written.
    #[serde(default)]
    pub runner: Runner,
}

/// What an execution and everything it starts may spend together. What is left out is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetSpec {
    /// Money, in US dollars. Every model that is used must have a price in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// Tokens sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Model calls, failed ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_model_calls: Option<u32>,
    /// What becomes of an execution whose next model call does not fit.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
}

/// What becomes of an execution whose next model call does not fit its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// It waits until somebody raises the budget, or something that was reserved comes back.
    #[default]
    Park,
    /// It is FAILED `budget_exhausted`.
    Fail,
}

impl OnExhausted {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Park => "park",
            Self::Fail => "fail",
        }
    }
}

impl DefinitionSpec {
    /// A definition with every default, as a YAML file with nothing but its keys would be.
    #[must_use]
    pub fn new(key: impl Into<String>, agent_key: impl Into<String>) -> Self {
        let key = key.into();
        Self {
            name: key.clone(),
            key,
            agent_key: agent_key.into(),
            description: None,
            input_schema: any_object(),
            output_schema: None,
            prompt: None,
            validators: default_validators(),
            max_retries: default_max_retries(),
            failure_codes: Vec::new(),
            failure_summary_prompt: default_summary_prompt(),
            retry: RetrySpec::default(),
            active_timeout_seconds: default_active_timeout(),
            deadline_seconds: default_deadline(),
            budget: None,
            runner: Runner::Declarative,
        }
    }
}

/// Where a definition's `run()` lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// In the record itself: any worker with its tools and validators can run it.
    #[default]
    Declarative,
    /// In the code of a worker that registered it.
    Rust,
}

/// A validator by name, with settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ValidatorRef {
    /// Just the name.
    Name(String),
    /// The name and its settings.
    WithSettings(ValidatorSettings),
}

/// A validator that takes settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidatorSettings {
    /// The registered name.
    pub name: String,
    /// Passed to the validator as they are.
    #[serde(default)]
    pub settings: Value,
}

impl ValidatorRef {
    /// The registered name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::WithSettings(with) => &with.name,
        }
    }

    /// The settings; null when there are none.
    #[must_use]
    pub fn settings(&self) -> &Value {
        match self {
            Self::Name(_) => &Value::Null,
            Self::WithSettings(with) => &with.settings,
        }
    }
}

/// How failures are retried. An absent class keeps its default (docs/failures.md).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// Delays in seconds for `transient`; their number is the number of retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transient_delays_seconds: Option<Vec<u32>>,
    /// Delays in seconds for `tool_error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_error_delays_seconds: Option<Vec<u32>>,
    /// Delays in seconds for `llm_error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llm_error_delays_seconds: Option<Vec<u32>>,
    /// Compressions of a conversation that outgrew the model's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_compressions: Option<u32>,
    /// The most retries over all classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total: Option<u32>,
    /// Adds up to this share of each delay at random, 0 to 1. Off by default, so that delays are exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
}

/// A configured model with prompts, tools and limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// Unique slug; `[a-z0-9._-]{1,128}`.
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
            references: false,
            conditions: false,
            instances: None,
            approvals: ApprovalsSpec::default(),
            limits: AgentLimits::default(),
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
}

impl AgentConfig {
    /// The same with what `overrides` says.
    #[must_use]
    pub fn with(self, overrides: AgentOverrides) -> Self {
        Self { prompt: overrides.prompt.unwrap_or(self.prompt), model: overrides.model.unwrap_or(self.model), ..self }
    }
}

/// A tool by name, with what the agent says about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ToolRef {
    /// Just the name.
    Name(String),
    /// The name and its settings.
    WithSettings(ToolSettings),
}

/// A tool that takes settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolSettings {
    /// The registered name.
    pub name: String,
    /// What running it twice would do, where it differs from what the tool declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<ToolEffect>,
    /// The longest one call may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// When a call of it starts; by its effect when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// Whether its calls are waited for.
    #[serde(default, skip_serializing_if = "Detached::is_never")]
    pub detached: Detached,
    /// The most calls of it that one execution runs at a time; no limit of its own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Passed to the tool as they are, for instance `allow_private_addresses` of `fetch_url`.
    #[serde(default)]
    pub settings: Value,
}

impl ToolSettings {
    /// How its calls are run.
    #[must_use]
    pub fn calls(&self) -> CallSettings {
        CallSettings { launch: self.launch, detached: self.detached, concurrency: self.concurrency }
    }
}

/// How calls of one tool are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallSettings {
    /// When a call starts; by the tool's effect when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// Whether calls are waited for.
    #[serde(default, skip_serializing_if = "Detached::is_never")]
    pub detached: Detached,
    /// The most calls that one execution runs at a time; no limit of its own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
}

impl CallSettings {
    /// When a call of a tool with `effect` starts.
    #[must_use]
    pub fn launch(&self, effect: ToolEffect) -> Launch {
        self.launch.unwrap_or(match effect {
            ToolEffect::ReadOnly | ToolEffect::Idempotent => Launch::Eager,
            ToolEffect::SideEffect => Launch::OnClose,
        })
    }
}

/// When a call whose references are there starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Launch {
    /// As soon as its arguments have streamed. The default for tools that change nothing, or change it once.
    Eager,
    /// When the whole reply has arrived. The default for side effects: a reply may still fail as a whole.
    OnClose,
}

/// Whether a call is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detached {
    /// Its result is waited for.
    #[default]
    Never,
    /// The model may say `_detached: true`: the call is accepted, and nothing waits for it.
    Allowed,
    /// Nothing ever waits for it.
    Always,
}

impl Detached {
    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// A tool without a handler. The model writes its result into `_output` in the same breath as the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatentToolSpec {
    /// The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique among the agent's tools.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments; an object.
    #[serde(default = "any_object")]
    pub parameters: Value,
    /// JSON Schema of the result that the model writes; anything when absent.
    #[serde(default = "anything")]
    pub output: Value,
}

impl LatentToolSpec {
    /// What is wrong with it beside its schemas: the field, and the reason.
    #[must_use]
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(fits) {
            return Some(("name", "must be 1 to 64 letters, digits, '_' and '-'"));
        }
        if self.name == SUBMIT_OUTPUT {
            return Some(("name", "is reserved for the final output"));
        }
        let is_object = self.parameters.get("type").and_then(Value::as_str) == Some("object");
        (!is_object).then_some(("parameters", "must say `\"type\": \"object\"`"))
    }
}

/// One plan over many items: what the tokens of `_instance` mean.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstancesSpec {
    /// A member of the input that is an array: instance ① sees its first item as its `†input`, ② the second, and so on. Absent:
    /// the model makes up its own tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

impl ToolRef {
    /// The registered name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::WithSettings(with) => &with.name,
        }
    }

    /// The settings, when there are any.
    #[must_use]
    pub fn settings(&self) -> Option<&ToolSettings> {
        match self {
            Self::Name(_) => None,
            Self::WithSettings(with) => Some(with),
        }
    }
}

/// A tool server: a child process spoken to over its standard streams, or an HTTP endpoint. Exactly one of `command` and
/// `url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServerSpec {
    /// The program and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Its environment; values may be references such as `env://TOKEN`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The streamable-HTTP endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Request headers; values may be references such as `env://TOKEN`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Only these of its tools; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Believe the server's own hints about what a tool changes.
    #[serde(default)]
    pub trusted: bool,
    /// What running its tools twice would do, by tool name, where it is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effects: BTreeMap<String, ToolEffect>,
    /// The argument that takes a call's idempotency key, by tool name, for servers that do not read it from the request's metadata.
    /// The model is not shown it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub idempotency_arguments: BTreeMap<String, String>,
    /// How calls of its tools are run, by tool name, where it differs from the defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, CallSettings>,
    /// The longest one call may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
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

fn any_object() -> Value {
    serde_json::json!({ "type": "object" })
}

fn anything() -> Value {
    Value::Bool(true)
}

fn default_validators() -> Vec<ValidatorRef> {
    vec![ValidatorRef::Name("is_valid_json".into())]
}

fn default_max_retries() -> u32 {
    3
}

fn default_summary_prompt() -> String {
    FAILURE_SUMMARY_PROMPT.into()
}

fn default_active_timeout() -> u32 {
    3_600
}

fn default_deadline() -> u32 {
    30 * 24 * 3_600
}
