//! Tools that the caller runs.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{SUBMIT_OUTPUT, any_object};
use crate::tool::{ToolEffect, ToolSpec};

/// Prefix of the tools of MCP servers.
const OF_SERVERS: &str = "mcp__";
/// Time that the caller has for a result when the declaration names none, in seconds.
const DAY: u32 = 86_400;

/// A tool whose calls the caller runs. The execution is parked until the caller has posted the result of each call.
///
/// ```
/// use longhaul_sdk::{AgentSpec, spec::{CallerToolSpec, ToolRef}};
/// use serde_json::json;
///
/// let mut agent = AgentSpec::new("support", "You help customers.");
/// let open_file = CallerToolSpec::new("open_file", "Shows a file to the user.")
///     .parameters(json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}))
///     .expires_seconds(600);
/// agent.tools.push(ToolRef::Caller(open_file.clone()));
///
/// let from_json: ToolRef = serde_json::from_value(json!({
///     "name": "open_file", "runs": "caller", "description": "Shows a file to the user.", "expires_seconds": 600,
///     "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
/// }))?;
/// assert_eq!(from_json, ToolRef::Caller(open_file));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallerToolSpec {
    /// The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique among the agent's tools.
    #[schemars(regex(pattern = "^[a-zA-Z0-9_-]{1,64}$"))]
    pub name: String,
    /// `caller`.
    pub runs: RunsAt,
    /// Description for the model.
    #[schemars(length(max = 16_384))]
    pub description: String,
    /// JSON Schema of the arguments; an object.
    #[serde(default = "any_object")]
    pub parameters: Value,
    /// JSON Schema of the outputs that the caller posts; any value when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Time that the caller has for the result of a call, in seconds; a day when absent.
    #[serde(default = "day")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub expires_seconds: u32,
    /// The effect of running a call twice; `side_effect` when absent.
    #[serde(default)]
    pub effect: ToolEffect,
}

/// The process that runs the calls of a declared tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunsAt {
    /// The caller that submitted the execution.
    Caller,
}

impl CallerToolSpec {
    /// A tool with any object as arguments, any output and a day to run.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            runs: RunsAt::Caller,
            description: description.into(),
            parameters: any_object(),
            output: None,
            expires_seconds: DAY,
            effect: ToolEffect::SideEffect,
        }
    }

    /// Sets the JSON Schema of the arguments.
    #[must_use]
    pub fn parameters(self, parameters: Value) -> Self {
        Self { parameters, ..self }
    }

    /// Sets the JSON Schema of the outputs.
    #[must_use]
    pub fn output(self, output: Value) -> Self {
        Self { output: Some(output), ..self }
    }

    /// Sets the time that the caller has for a result, in seconds.
    #[must_use]
    pub fn expires_seconds(self, expires_seconds: u32) -> Self {
        Self { expires_seconds, ..self }
    }

    /// Sets the effect of running a call twice.
    #[must_use]
    pub fn effect(self, effect: ToolEffect) -> Self {
        Self { effect, ..self }
    }

    /// The tool as the model sees it.
    #[must_use]
    pub fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            effect: self.effect,
            latent_output: None,
            is_strict: false,
            mended: None,
        }
    }

    /// Returns the first error outside the schemas: the field and the reason.
    ///
    /// ```
    /// use longhaul_sdk::spec::CallerToolSpec;
    ///
    /// assert_eq!(CallerToolSpec::new("open_file", "").problem(), None);
    /// let (field, _) = CallerToolSpec::new("mcp__files__open", "").problem().unwrap();
    /// assert_eq!(field, "name");
    /// ```
    #[must_use]
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        if self.name.starts_with(OF_SERVERS) {
            return Some(("name", "is reserved for the tools of MCP servers"));
        }
        if self.expires_seconds == 0 {
            return Some(("expires_seconds", "must be at least 1"));
        }
        declaration_problem(&self.name, &self.parameters)
    }

    /// Returns the errors of `tools`, outside their schemas: each with its index, the field and the reason. `names` are
    /// the agent's other tools.
    ///
    /// ```
    /// use longhaul_sdk::spec::CallerToolSpec;
    ///
    /// let tools = ["open_file", "crm"].map(|name| CallerToolSpec::new(name, ""));
    /// let problems = CallerToolSpec::problems(tools.iter(), ["crm"]);
    /// assert_eq!(problems, [(1, "name", "is the name of another tool")]);
    /// ```
    #[must_use]
    pub fn problems<'a>(
        tools: impl IntoIterator<Item = &'a Self>,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<(usize, &'static str, &'static str)> {
        let mut names: HashSet<&str> = names.into_iter().collect();
        let mut problems = Vec::new();
        for (index, tool) in tools.into_iter().enumerate() {
            problems.extend(tool.problem().map(|(field, reason)| (index, field, reason)));
            if !names.insert(&tool.name) {
                problems.push((index, "name", "is the name of another tool"));
            }
        }
        problems
    }

    /// The schemas that must compile, by field.
    pub fn schemas(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        [("parameters", &self.parameters)].into_iter().chain(self.output.as_ref().map(|schema| ("output", schema)))
    }
}

fn day() -> u32 {
    DAY
}

/// Returns the first error of a tool's declaration outside its schemas: the field and the reason.
pub(super) fn declaration_problem(name: &str, parameters: &Value) -> Option<(&'static str, &'static str)> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) {
        return Some(("name", "must be 1 to 64 letters, digits, '_' and '-'"));
    }
    if name == SUBMIT_OUTPUT {
        return Some(("name", "is reserved for the final output"));
    }
    let is_object = parameters.get("type").and_then(Value::as_str) == Some("object");
    (!is_object).then_some(("parameters", "must say `\"type\": \"object\"`"))
}
