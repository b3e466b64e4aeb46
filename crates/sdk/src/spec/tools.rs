//! What an agent says about its tools: which, from where, and how their calls are run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use super::{SUBMIT_OUTPUT, any_object};
use crate::tool::ToolEffect;

/// A tool by name, with what the agent says about it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ToolRef {
    /// Just the name.
    Name(String),
    /// The name and its settings.
    WithSettings(ToolSettings),
}

// By hand: a derived `untagged` cannot take settings whose numbers are beyond 64 bits.
impl<'de> Deserialize<'de> for ToolRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if let Value::String(name) = value {
            return Ok(Self::Name(name));
        }
        ToolSettings::deserialize(value).map(Self::WithSettings).map_err(D::Error::custom)
    }
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

fn anything() -> Value {
    Value::Bool(true)
}
