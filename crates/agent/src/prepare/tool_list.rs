//! The tool list shown to the model, and the parsing of its calls.
//!
//! Invariants: the list has the same bytes on every turn but the last, because providers cache by them; a resumed
//! execution shows the list that it started with.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use longhaul_domain::{CallError, CallErrorKind, ToolCall, cut, noted::NotedModel};
use longhaul_guards::json_schema::SchemaCache;
use longhaul_references::{Features, PlannedCall, Signature};
use longhaul_sdk::{AgentConfig, Failure, FailureCode, ToolEffect, ToolSpec, spec::LatentToolSpec};
use serde_json::{Value, json};

pub use longhaul_sdk::spec::SUBMIT_OUTPUT;

/// Only argument of [`SUBMIT_OUTPUT`]. Any value is an output, including null.
pub(crate) const OUTPUT: &str = "output";
/// Maximum tool names listed for a model that called an unknown one.
const MAX_KNOWN_NAMES: usize = 100;

/// The parts of an execution that its tools depend on.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    pub input: &'a Value,
    /// Schema that the output must satisfy.
    pub output_schema: Option<&'a Value>,
}

/// Tools offered in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Every tool.
    All,
    /// Only the output: this is the last turn.
    OutputOnly,
}

/// Tools pinned by an earlier attempt.
#[derive(Debug)]
pub struct PinnedTools {
    pub tools: Vec<ToolSpec>,
    /// The list shown to the model.
    pub shown: Vec<ToolSpec>,
    /// The pinned model, if any.
    pub model: Option<NotedModel>,
}

/// The tools of one execution as the model sees them.
#[derive(Debug)]
pub struct ToolList {
    shown: Vec<ToolSpec>,
    output: Option<ToolSpec>,
    signatures: HashMap<String, Arc<Signature>>,
    all_bytes: OnceLock<Vec<u8>>,
    output_bytes: OnceLock<Vec<u8>>,
}

impl ToolList {
    /// Builds the list from `tools` and the agent's latent tools; `pinned` is the list that an earlier attempt
    /// showed.
    ///
    /// # Errors
    /// `invalid_definition` for an unusable schema, or a latent tool with a reserved name.
    pub fn new(
        config: &AgentConfig,
        tools: &[ToolSpec],
        task: Task<'_>,
        pinned: Option<Vec<ToolSpec>>,
        schemas: &SchemaCache,
    ) -> Result<Self, Failure> {
        let latent = config.latent_tools.iter().map(latent_spec);
        let mut shown = Vec::new();
        let mut signatures = HashMap::new();
        for spec in tools.iter().cloned().chain(latent) {
            if spec.name == SUBMIT_OUTPUT {
                return Err(invalid(format!("`{SUBMIT_OUTPUT}` is reserved; no tool can have that name")));
            }
            let features = Features::of(config, &spec.name, task.input);
            let signature = Signature::new(&spec, features, schemas).map_err(|reason| unusable(&spec.name, &reason))?;
            let is_again = signatures.insert(spec.name.clone(), Arc::new(signature)).is_some();
            if is_again {
                shown.retain(|shown: &ToolSpec| shown.name != spec.name);
            }
            shown.push(longhaul_references::shown(&spec, &features));
        }
        let output = match task.output_schema {
            None => None,
            Some(schema) => {
                let features = Features::of_output(config);
                // Validators check the output itself: an invalid output is corrected, not refused.
                let signature = Signature::new(&output_spec(&Value::Bool(true)), features, schemas)
                    .map_err(|reason| unusable(SUBMIT_OUTPUT, &reason))?;
                signatures.insert(SUBMIT_OUTPUT.to_owned(), Arc::new(signature));
                Some(longhaul_references::shown(&output_spec(schema), &features))
            }
        };
        shown.extend(output.clone());
        if let Some(pinned) = pinned {
            shown = pinned;
        }
        let (all_bytes, output_bytes) = (OnceLock::new(), OnceLock::new());
        Ok(Self { shown, output, signatures, all_bytes, output_bytes })
    }

    /// The tools that `offer` shows. Without an output schema the last turn shows the whole list and permits no
    /// call: providers refuse a transcript with calls of tools that are not listed.
    pub fn shown(&self, offer: Offer) -> &[ToolSpec] {
        match (offer, &self.output) {
            (Offer::All, _) | (Offer::OutputOnly, None) => &self.shown,
            (Offer::OutputOnly, Some(output)) => std::slice::from_ref(output),
        }
    }

    /// The same list as JSON: the identity of the list, and about the bytes that it costs to send.
    pub(crate) fn shown_bytes(&self, offer: Offer) -> &[u8] {
        let bytes = match offer {
            Offer::All => &self.all_bytes,
            Offer::OutputOnly => &self.output_bytes,
        };
        // Specs consist of strings, numbers and JSON: serialization cannot fail.
        bytes.get_or_init(|| serde_json::to_vec(self.shown(offer)).unwrap_or_default())
    }

    /// True if the output is submitted by a call.
    pub(crate) fn has_output(&self) -> bool {
        self.output.is_some()
    }

    /// Parses a call as the model wrote it.
    ///
    /// # Errors
    /// A structural error: an unknown tool, or an error of [`PlannedCall::read`].
    pub fn read(&self, call: &ToolCall) -> Result<PlannedCall, CallError> {
        let Some(signature) = self.signatures.get(&call.name) else {
            let known: Vec<_> = self.shown.iter().take(MAX_KNOWN_NAMES).map(|spec| spec.name.as_str()).collect();
            let message = format!("there is no tool named `{}`", cut(&call.name, 128));
            let error = CallError::new(CallErrorKind::Structural, message);
            return Err(error.with_details(json!({ "known_tools": known })));
        };
        PlannedCall::read(call, signature)
    }
}

fn latent_spec(latent: &LatentToolSpec) -> ToolSpec {
    ToolSpec {
        name: latent.name.clone(),
        description: latent.description.clone(),
        parameters: latent.parameters.clone(),
        effect: ToolEffect::ReadOnly,
        latent_output: Some(latent.output.clone()),
        is_strict: false,
        mended: None,
    }
}

fn output_spec(schema: &Value) -> ToolSpec {
    let mut schema = schema.clone();
    if let Some(members) = schema.as_object_mut() {
        // The schema moves one level down, so its pointers are rewritten below; its own `$id` would make it their
        // root again.
        members.remove("$schema");
        members.remove("$id");
    }
    rebase(&mut schema);
    ToolSpec {
        name: SUBMIT_OUTPUT.into(),
        description: "Submits the final output and ends the run, after the other calls of the same reply have run. \
                      Call it once, when the task is done."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": { OUTPUT: schema },
            "required": [OUTPUT],
            "additionalProperties": false,
        }),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

/// Rewrites the `$ref`s of a schema that becomes the schema of the property `output`.
fn rebase(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(target) if name == "$ref" => {
                        if let Some(rest) =
                            target.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'))
                        {
                            *target = format!("#/properties/{OUTPUT}{rest}");
                        }
                    }
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
                    Value::Array(_) | Value::Object(_) => rebase(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rebase),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn unusable(tool: &str, reason: &str) -> Failure {
    invalid(format!("the arguments of tool `{tool}` have no usable schema: {reason}"))
}

fn invalid(summary: String) -> Failure {
    Failure::permanent(FailureCode::INVALID_DEFINITION, summary)
}

#[cfg(test)]
mod tests {
    use longhaul_sdk::{AgentConfigProvider, AgentSpec, ConfigType};

    use super::*;

    fn tool_list(agent: &AgentSpec, output_schema: Option<&Value>) -> Result<ToolList, Failure> {
        let config = agent.config(ConfigType::Conversation);
        ToolList::new(&config, &[], Task { input: &json!({}), output_schema }, None, &SchemaCache::default())
    }

    #[test]
    fn output_schema_references_resolve_inside_the_tool() {
        let schema = json!({
            "$id": "https://example.org/list", "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "object",
                "properties": {"next": {"$ref": "#/$defs/node"}, "$ref": {"type": "null"}}}},
        });
        let tools = tool_list(&AgentSpec::new("a", "p"), Some(&schema)).unwrap();
        let parameters = &tools.shown(Offer::OutputOnly)[0].parameters;
        let validator = longhaul_guards::json_schema::report::compile(parameters).unwrap();
        let is_valid = |value| longhaul_guards::json_schema::report::violations(&validator, &value).is_none();
        assert!(is_valid(json!({"output": {"next": {"next": {}}}})));
        assert!(!is_valid(json!({"output": {"next": {"next": 1}}})));
        assert!(!is_valid(json!({})));
    }

    #[test]
    fn latent_tool_named_submit_output_is_refused() {
        let mut agent = AgentSpec::new("a", "p");
        let latent = json!({"name": "submit_output", "description": "d"});
        agent.latent_tools.push(serde_json::from_value(latent).unwrap());
        assert_eq!(tool_list(&agent, None).unwrap_err().code, FailureCode::INVALID_DEFINITION);
    }
}
