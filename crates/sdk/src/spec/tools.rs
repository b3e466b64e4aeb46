//! The tools of an agent: their names, their sources and how their calls run.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use super::{CallerToolSpec, NAME, any_object, caller_tool::declaration_problem};
use crate::tool::ToolEffect;

/// A tool by name, with the agent's settings for it, or the declaration of a tool that the caller runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ToolRef {
    /// Only the name.
    Name(String),
    /// The name and its settings.
    WithSettings(ToolSettings),
    /// A tool whose calls the caller runs; the entry says `runs: caller`.
    Caller(CallerToolSpec),
}

// Written by hand: a derived `untagged` cannot read settings with numbers beyond 64 bits.
impl<'de> Deserialize<'de> for ToolRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if let Value::String(name) = value {
            return Ok(Self::Name(name));
        }
        if value.get("runs").is_some() {
            return CallerToolSpec::deserialize(value).map(Self::Caller).map_err(D::Error::custom);
        }
        ToolSettings::deserialize(value).map(Self::WithSettings).map_err(D::Error::custom)
    }
}

// Written by hand: of three alternatives, the errors of the one that `runs` selects are reported.
impl JsonSchema for ToolRef {
    fn schema_name() -> Cow<'static, str> {
        "ToolRef".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let settings = generator.subschema_for::<ToolSettings>();
        let caller = generator.subschema_for::<CallerToolSpec>();
        json_schema!({
            "description": "A tool by name, with the agent's settings for it, or, with `runs`, the declaration of a \
                            tool that the caller runs.",
            "anyOf": [
                { "type": "string", "pattern": NAME },
                { "type": "object", "if": { "required": ["runs"] }, "then": caller, "else": settings },
            ],
        })
    }
}

impl ToolRef {
    /// The registered name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::WithSettings(with) => &with.name,
            Self::Caller(tool) => &tool.name,
        }
    }

    /// The settings, if there are any.
    #[must_use]
    pub fn settings(&self) -> Option<&ToolSettings> {
        match self {
            Self::Name(_) | Self::Caller(_) => None,
            Self::WithSettings(with) => Some(with),
        }
    }

    /// The declaration, if the caller runs the tool.
    #[must_use]
    pub fn caller(&self) -> Option<&CallerToolSpec> {
        match self {
            Self::Name(_) | Self::WithSettings(_) => None,
            Self::Caller(tool) => Some(tool),
        }
    }
}

/// A tool with settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolSettings {
    /// The registered name.
    #[schemars(regex(pattern = NAME))]
    pub name: String,
    /// The effect of running the tool twice, if it differs from the one the tool declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<ToolEffect>,
    /// Maximum duration of one call, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// The time at which a call starts; follows from the tool's effect when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// Calls that the execution does not wait for.
    #[serde(default, skip_serializing_if = "Detached::is_never")]
    pub detached: Detached,
    /// Maximum number of calls of this tool that one execution runs at a time; no limit of its own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Consequence of a call that fails. Calls with invalid arguments always go back to the model.
    #[serde(default, skip_serializing_if = "OnError::is_tell")]
    pub on_error: OnError,
    /// Passed to the tool unchanged, for instance `allow_private_addresses` of `fetch_url`.
    #[serde(default)]
    pub settings: Value,
}

impl ToolSettings {
    /// Returns the settings that apply to the tool's calls.
    #[must_use]
    pub fn calls(&self) -> CallSettings {
        CallSettings { launch: self.launch, detached: self.detached, concurrency: self.concurrency }
    }
}

/// Settings of the calls of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallSettings {
    /// The time at which a call starts; follows from the tool's effect when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// Calls that the execution does not wait for.
    #[serde(default, skip_serializing_if = "Detached::is_never")]
    pub detached: Detached,
    /// Maximum number of calls that one execution runs at a time; no limit of its own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
}

impl CallSettings {
    /// Returns the time at which a call of a tool with `effect` starts.
    ///
    /// ```
    /// use longhaul_sdk::{ToolEffect, spec::{CallSettings, Launch}};
    ///
    /// let default = CallSettings::default();
    /// assert_eq!(default.launch(ToolEffect::ReadOnly), Launch::Eager);
    /// assert_eq!(default.launch(ToolEffect::SideEffect), Launch::OnClose);
    /// let eager = CallSettings { launch: Some(Launch::Eager), ..default };
    /// assert_eq!(eager.launch(ToolEffect::SideEffect), Launch::Eager);
    /// ```
    #[must_use]
    pub fn launch(&self, effect: ToolEffect) -> Launch {
        self.launch.unwrap_or(match effect {
            ToolEffect::ReadOnly | ToolEffect::Idempotent => Launch::Eager,
            ToolEffect::SideEffect => Launch::OnClose,
        })
    }
}

/// The time at which a call starts, once the results it refers to are available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Launch {
    /// As soon as its arguments have streamed. The default for read-only and idempotent tools.
    Eager,
    /// After the whole reply has arrived. The default for tools with side effects: a reply may still fail as a
    /// whole.
    OnClose,
}

/// Consequence of a call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The model is told and continues.
    #[default]
    Tell,
    /// The run fails with `tool_failed`, class `tool_error`.
    Fail,
}

impl OnError {
    fn is_tell(&self) -> bool {
        *self == Self::Tell
    }
}

/// Calls that the execution does not wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detached {
    /// None: the execution waits for every result.
    #[default]
    Never,
    /// Calls in which the model sets `_detached: true`: such a call is accepted, and nothing waits for its result.
    Allowed,
    /// All calls.
    Always,
}

impl Detached {
    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// A tool without a handler. The model writes the result into `_output` as part of the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatentToolSpec {
    /// The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique among the agent's tools.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments; an object.
    #[serde(default = "any_object")]
    pub parameters: Value,
    /// JSON Schema of the result that the model writes; any value when absent.
    #[serde(default = "anything")]
    pub output: Value,
}

impl LatentToolSpec {
    /// Returns the first error outside the schemas: the field and the reason.
    ///
    /// ```
    /// use longhaul_sdk::spec::LatentToolSpec;
    /// use serde_json::json;
    ///
    /// let classify = |name| {
    ///     serde_json::from_value::<LatentToolSpec>(json!({"name": name, "description": "Names the topic of a mail."}))
    /// };
    /// assert_eq!(classify("topic")?.problem(), None);
    /// assert_eq!(classify("submit_output")?.problem(), Some(("name", "is reserved for the final output")));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        declaration_problem(&self.name, &self.parameters)
    }
}

/// One plan over many items: the meaning of the tokens in `_instance`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstancesSpec {
    /// Name of an array in the input: instance ① gets its first item as `†input`, ② the second, and so on. When
    /// absent, the model chooses its own tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

/// An MCP server: a child process that communicates over its standard streams, or an HTTP endpoint. Set exactly one
/// of `command` and `url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServerSpec {
    /// The program and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The environment of the program; values may be references such as `env://TOKEN`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The streamable-HTTP endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Request headers; values may be references such as `env://TOKEN`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The tools of the server to use; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Trust the server's own hints about the effect of its tools.
    #[serde(default)]
    pub trusted: bool,
    /// The effect of running a tool twice, by tool name, where it is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effects: BTreeMap<String, ToolEffect>,
    /// The argument that receives a call's idempotency key, by tool name, for servers that do not read the key from
    /// the request's metadata. The argument is hidden from the model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub idempotency_arguments: BTreeMap<String, String>,
    /// Settings of the calls of its tools, by tool name, where they differ from the defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, CallSettings>,
    /// Maximum duration of one call, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
}

fn anything() -> Value {
    Value::Bool(true)
}
