//! Previews of calls whose arguments hold secrets. The journal itself is exact: a resumed attempt needs it.

use std::collections::HashMap;

use longhaul_domain::redaction::{REDACTED, Secrets};
use serde_json::Value;

use super::{Agent, preview};

/// Secrets per tool, for tools that have any.
#[derive(Debug, Default)]
pub(super) struct ToolSecrets(HashMap<String, (Vec<String>, Option<Value>)>);

impl ToolSecrets {
    pub(super) fn of(agent: &Agent) -> Self {
        let tools = agent.toolbox.specs().iter().map(|spec| (&spec.name, &spec.parameters));
        let latent = agent.config.latent_tools.iter().map(|tool| (&tool.name, &tool.parameters));
        let mut secrets = HashMap::new();
        for (name, schema) in tools.chain(latent) {
            let (pointers, schema) = (agent.policy.redactions(name), is_marked(schema).then(|| schema.clone()));
            if !pointers.is_empty() || schema.is_some() {
                secrets.insert(name.clone(), (pointers, schema));
            }
        }
        Self(secrets)
    }

    /// The start of a call's result. Errors are redacted: an error repeats the call and may quote its arguments.
    pub(super) fn preview(&self, tool: &str, text: &str, is_error: bool) -> String {
        let Some((pointers, schema)) = self.0.get(tool).filter(|_| is_error) else { return preview(text) };
        let (note, error) = match text.rsplit_once('\n') {
            Some((note, error)) => (format!("{note}\n"), error),
            None => (String::new(), text),
        };
        let Ok(mut error) = serde_json::from_str::<Value>(error) else { return preview(&note) };
        if let Some(error) = error.get_mut("error").and_then(Value::as_object_mut) {
            error.remove("details");
        }
        if let Some(arguments) = error.pointer_mut("/call/arguments") {
            *arguments = match arguments.take() {
                written @ (Value::Object(_) | Value::Array(_)) => {
                    Secrets { pointers, schema: schema.as_ref() }.hide(written)
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    Value::String(REDACTED.to_owned())
                }
            };
        }
        preview(&format!("{note}{error}"))
    }
}

/// True if a part of the schema is marked as secret.
fn is_marked(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            let is_true = |name: &str| members.get(name) == Some(&Value::Bool(true));
            is_true("x-secret") || is_true("writeOnly") || members.values().any(is_marked)
        }
        Value::Array(items) => items.iter().any(is_marked),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_that_repeats_its_call_shows_no_secret() {
        let schema = json!({"properties": {"pin": {"writeOnly": true}}});
        let secrets = ToolSecrets(HashMap::from([("pay".to_owned(), (vec!["/token".to_owned()], Some(schema)))]));
        let error = |arguments: Value| {
            json!({
                "error": {"type": "structural", "message": "no", "details": {"violations": ["\"hunter2\" is wrong"]}},
                "call": {"_tool": "pay", "arguments": arguments},
            })
            .to_string()
        };
        let arguments = json!({"token": "hunter2", "pin": "hunter2", "to": "A"});
        for text in [error(arguments.clone()), format!("[note]\n{}", error(arguments)), error(json!("{\"hunter2"))] {
            let shown = secrets.preview("pay", &text, true);
            assert!(!shown.contains("hunter2") && shown.contains("structural"), "{shown}");
        }
        assert_eq!(secrets.preview("pay", "it is done", false), "it is done");
        assert_eq!(secrets.preview("other", "it is hunter2", true), "it is hunter2");
    }
}
