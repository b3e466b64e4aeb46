//! The model of an agent and its request parameters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Members of a request that `extra` cannot set, whatever the provider's protocol.
pub const RESERVED_EXTRA: [&str; 5] = ["model", "messages", "tools", "tool_choice", "stream"];

/// The model and its request parameters. An absent field is not sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// A provider of the worker's configuration; the configured default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name for the model; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Maximum length of a reply, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Files that the model takes beside text. It is sent a description of any other; text files are sent as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepts: Vec<FileInput>,
    /// Reasoning effort, for models that support it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Have the provider enforce the schemas of the tools, where a schema can be expressed in the provider's strict
    /// form. OpenAI-compatible servers only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict_tools: bool,
    /// The form in which the model returns the answer of a definition with an output schema.
    #[serde(default, skip_serializing_if = "OutputMode::is_tool")]
    pub output: OutputMode,
    /// Request the reply as a stream.
    #[serde(default = "yes")]
    pub stream: bool,
    /// Further request fields, sent to the provider unchanged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Value>,
    /// Models to use instead, in this order, when the model's provider is down or out of quota for longer than the
    /// worker's configuration lets an execution wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<FallbackModel>,
    /// The answers of the scripted model: a minijinja program over `messages`, `tools` and `turn`
    /// (docs/guide/scripted-model.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
}

impl Default for ModelSpec {
    fn default() -> Self {
        Self {
            provider: None,
            name: None,
            temperature: None,
            max_output_tokens: None,
            accepts: Vec::new(),
            effort: None,
            strict_tools: false,
            output: OutputMode::default(),
            stream: true,
            extra: BTreeMap::new(),
            fallback: Vec::new(),
            script: None,
        }
    }
}

impl ModelSpec {
    /// Returns the model, then its fallbacks, each as a complete spec. `extra` is kept only for its own provider.
    ///
    /// ```
    /// use longhaul_sdk::spec::{FallbackModel, ModelSpec};
    ///
    /// let model = ModelSpec {
    ///     name: Some("large".into()),
    ///     fallback: vec![FallbackModel { provider: None, name: Some("small".into()), accepts: None }],
    ///     ..ModelSpec::default()
    /// };
    /// let names: Vec<_> = model.routes().into_iter().filter_map(|route| route.name).collect();
    /// assert_eq!(names, ["large", "small"]);
    /// ```
    #[must_use]
    pub fn routes(&self) -> Vec<Self> {
        let first = Self { fallback: Vec::new(), ..self.clone() };
        let others = self.fallback.iter().map(|other| Self {
            provider: other.provider.clone().or_else(|| self.provider.clone()),
            name: other.name.clone(),
            accepts: other.accepts.clone().unwrap_or_else(|| self.accepts.clone()),
            extra: match &other.provider {
                Some(provider) if Some(provider) != self.provider.as_ref() => BTreeMap::new(),
                Some(_) | None => self.extra.clone(),
            },
            ..first.clone()
        });
        std::iter::once(first.clone()).chain(others).collect()
    }
}

/// A model to use when another model's provider is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FallbackModel {
    /// A provider of the worker's configuration; the model's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name for the model; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Files that the model takes; as its model when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepts: Option<Vec<FileInput>>,
}

/// A kind of files that a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileInput {
    /// PNG, JPEG and WebP.
    Images,
    Pdf,
}

/// The form in which the model returns the answer of a definition with an output schema. Each form is validated in
/// the same way, and an answer in plain text is always accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// A call of the tool `submit_output`, whose arguments have the schema.
    #[default]
    Tool,
    /// Text for which the provider itself enforces the schema, if it can.
    Native,
    /// Plain text.
    Text,
}

impl OutputMode {
    fn is_tool(&self) -> bool {
        *self == Self::Tool
    }
}

/// Reasoning effort of a model; scales the timeouts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Short reasoning.
    Low,
    /// Ordinary reasoning.
    Medium,
    /// Long reasoning.
    High,
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fallback_inherits_settings_and_extras_of_its_provider() {
        let spec: ModelSpec = serde_json::from_value(json!({
            "provider": "a", "name": "large", "temperature": 0.5, "extra": {"seed": 7},
            "fallback": [{"name": "small"}, {"provider": "b"}],
        }))
        .unwrap();
        let routes = spec.routes();
        let said: Vec<_> = routes
            .iter()
            .map(|route| (route.provider.as_deref(), route.name.as_deref(), route.extra.len(), route.temperature))
            .collect();
        assert_eq!(
            said,
            [
                (Some("a"), Some("large"), 1, Some(0.5)),
                (Some("a"), Some("small"), 1, Some(0.5)),
                (Some("b"), None, 0, Some(0.5)),
            ]
        );
        assert!(routes.iter().all(|route| route.fallback.is_empty()));
    }
}
