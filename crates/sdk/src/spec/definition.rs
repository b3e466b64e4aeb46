//! The record of a definition: agent, input, validation, retries and limits.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use strum::IntoStaticStr;

use super::{KEY, NAME, any_object};
use crate::money::Usd;

/// The prompt that asks the model for a failure summary when its corrections are used up.
pub const FAILURE_SUMMARY_PROMPT: &str = "You could not produce a valid answer within the allowed attempts. Explain in \
    at most 100 words, in plain language and without addressing anyone, what went wrong.";

/// Feedback to the model when a validator refuses an answer without giving a reason.
pub const GENERIC_FEEDBACK: &str = "The previous response was invalid. Please try again.";

/// An execution type: agent, input schema, and the conditions under which an answer is accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DefinitionSpec {
    /// Unique slug.
    #[schemars(length(max = 64), regex(pattern = KEY))]
    pub key: String,
    /// The agent that runs it.
    pub agent_key: String,
    /// Display name.
    pub name: String,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the input; any object when absent.
    #[serde(default = "any_object")]
    pub input_schema: Value,
    /// JSON Schema that the answer must satisfy. When absent, the validators alone decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The first user message, a minijinja template over `input`. When absent, the input as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Validators in order; the first failing one decides the next step.
    #[serde(default = "default_validators")]
    #[schemars(length(max = 32))]
    pub validators: Vec<ValidatorRef>,
    /// Maximum number of corrections: `n` allows `n + 1` validated answers.
    #[serde(default = "default_max_retries")]
    pub max_retries: u32,
    /// Failure codes of the definition, in addition to the built-in ones.
    #[serde(default)]
    #[schemars(inner(regex(pattern = "^[a-zA-Z0-9._-]{1,128}$")))]
    pub failure_codes: Vec<String>,
    /// The prompt that asks the model for the failure summary.
    #[serde(default = "default_summary_prompt")]
    pub failure_summary_prompt: String,
    /// Retries by failure class, where they differ from the defaults.
    #[serde(default)]
    pub retry: RetrySpec,
    /// Maximum time that workers hold an execution, in seconds; waits are excluded.
    #[serde(default = "default_active_timeout")]
    #[schemars(range(min = 1))]
    pub active_timeout_seconds: u32,
    /// Maximum lifetime of an execution, in seconds; waits are included.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub deadline_seconds: u32,
    /// Budget of one execution and everything it starts, if the submit sets none; the agent's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetSpec>,
    /// Limits on the number of the definition's executions that run at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub concurrency: Vec<ConcurrencySpec>,
    /// The place of the definition's `run()`.
    #[serde(default)]
    pub runner: Runner,
}

impl DefinitionSpec {
    /// A definition with every default, like a YAML file with only its keys.
    ///
    /// ```
    /// use longhaul_sdk::{DefinitionSpec, spec::ValidatorRef};
    ///
    /// let definition = DefinitionSpec::new("ticket-summary", "summariser");
    /// assert_eq!(definition.validators, [ValidatorRef::Name("is_valid_json".into())]);
    /// assert_eq!((definition.max_retries, definition.active_timeout_seconds), (3, 3_600));
    /// ```
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
            concurrency: Vec::new(),
            runner: Runner::Declarative,
        }
    }
}

/// The place of a definition's `run()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// In the record itself: any worker with its tools and validators can run it.
    #[default]
    Declarative,
    /// In the code of a worker that registered it.
    Rust,
    /// In the code of a worker in another language, which registered it over HTTP (docs/reference/worker-protocol.md).
    Remote,
}

/// A validator by name, with settings.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ValidatorRef {
    /// Only the name.
    Name(#[schemars(regex(pattern = NAME))] String),
    /// The name and its settings.
    WithSettings(ValidatorSettings),
}

// Written by hand: a derived `untagged` cannot read settings with numbers beyond 64 bits.
impl<'de> Deserialize<'de> for ValidatorRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if let Value::String(name) = value {
            return Ok(Self::Name(name));
        }
        ValidatorSettings::deserialize(value).map(Self::WithSettings).map_err(D::Error::custom)
    }
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

/// A validator with settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidatorSettings {
    /// The registered name.
    #[schemars(regex(pattern = NAME))]
    pub name: String,
    /// Passed to the validator unchanged.
    #[serde(default)]
    pub settings: Value,
}

/// Retries by failure class. An absent class keeps its default (docs/reference/failures.md).
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
    /// Maximum number of compressions for one request that outgrew the model's context window. Without it, until
    /// nothing is left to compress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_compressions: Option<u32>,
    /// Maximum number of retries over all classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total: Option<u32>,
    /// Maximum random addition to each delay, as a share of it, 0 to 1. Off by default, so that delays are exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
}

/// Spending limits that an execution shares with everything it starts. An absent limit does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetSpec {
    /// Maximum cost in US dollars. Every model in use must have a price in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// Maximum number of tokens, sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Maximum number of model calls, failed ones included; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_model_calls: Option<u32>,
    /// Handling of an execution whose next model call exceeds the budget.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
}

/// A limit on the executions of a definition or an agent that run at a time, grouped by a key. The limits of the
/// newest version apply to executions of every version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencySpec {
    /// `tenant`, `definition`, `agent`, or `metadata.` and the path of a value in the execution's metadata.
    /// Executions without such a value are not limited.
    pub key: String,
    /// Maximum number of running executions for each value of the key; 0 holds all of them back.
    #[schemars(range(max = Self::MAX))]
    pub limit: u32,
}

impl ConcurrencySpec {
    /// Maximum value of a limit.
    pub const MAX: u32 = 10_000;

    /// Returns every error in these limits that the schema does not find, with its JSON pointer.
    ///
    /// ```
    /// use longhaul_sdk::spec::ConcurrencySpec;
    ///
    /// let limit = |key: &str, limit| ConcurrencySpec { key: key.into(), limit };
    /// assert!(ConcurrencySpec::problems(&[limit("tenant", 10), limit("metadata.customer", 1)]).is_empty());
    /// let problems = ConcurrencySpec::problems(&[limit("customer", 1)]);
    /// assert_eq!(problems[0].0, "/concurrency/0/key");
    /// ```
    #[must_use]
    pub fn problems(limits: &[Self]) -> Vec<(String, &'static str)> {
        let mut problems = Vec::new();
        for (index, limit) in limits.iter().enumerate() {
            if !is_limit_expression(&limit.key) {
                let reason = "must be tenant, definition, agent, queue or metadata.<path>";
                problems.push((format!("/concurrency/{index}/key"), reason));
            }
            if limits.iter().take(index).any(|other| other.key == limit.key) {
                problems.push((format!("/concurrency/{index}/key"), "is limited before"));
            }
        }
        problems
    }
}

/// Returns true if a concurrency limit can group executions by `text`.
#[must_use]
pub fn is_limit_expression(text: &str) -> bool {
    let fits = |part: &str| !part.is_empty() && !part.contains([':', '\0', '{', '}', ',', '"', '\\']);
    match text.strip_prefix("metadata.") {
        Some(path) => text.len() <= 200 && path.split('.').all(fits),
        None => matches!(text, "tenant" | "definition" | "agent" | "queue"),
    }
}

/// Handling of an execution whose next model call exceeds its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OnExhausted {
    /// Park it until the budget is raised or a reservation is released.
    #[default]
    Park,
    /// End it as FAILED with `budget_exhausted`.
    Fail,
}

impl OnExhausted {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
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
