//! The input with the defaults of the input schema filled in.
//!
//! The record keeps the input byte for byte; this view feeds prompts, references, validators and Rust input types.
//! Defaults come from `properties`, also below `items`, `allOf` and `$ref`s within the schema. `anyOf` and `oneOf`
//! are ignored: they do not say which alternative applies.

use std::sync::Arc;

use longhaul_sdk::{Failure, FailureCode};
use serde_json::Value;

/// Maximum bytes of defaults added to one input: a default is added once per item of a list.
const MAX_ADDED_BYTES: usize = 1 << 20;
/// Maximum schemas visited for one input.
const MAX_STEPS: usize = 1_000_000;
/// Maximum bytes of the input copied to insert defaults.
const MAX_COPIED_BYTES: usize = 64 << 20;
/// Maximum nesting of schemas, including `$ref`s, which may be circular. Deeper values get no defaults.
const MAX_DEPTH: usize = 64;

/// Returns `input` with the defaults that `schema` has for missing object members; `input` itself if none is
/// missing.
///
/// # Errors
/// `invalid_definition` if a limit of space or work is exceeded.
pub fn with_defaults(schema: &Value, input: Arc<Value>) -> Result<Arc<Value>, Failure> {
    let mut defaults = Defaults { root: schema, added: 0, copied: 0, steps: 0 };
    match defaults.apply(schema, &input, 0) {
        Ok(None) => Ok(input),
        Ok(Some(applied)) => Ok(Arc::new(applied)),
        Err(Exceeded) => {
            let summary = "the defaults of the input schema take too much space or work for this input";
            Err(Failure::permanent(FailureCode::INVALID_DEFINITION, summary))
        }
    }
}

struct Exceeded;

struct Defaults<'a> {
    root: &'a Value,
    added: usize,
    copied: usize,
    steps: usize,
}

impl<'a> Defaults<'a> {
    /// The value with its defaults; `None` if it needs none.
    fn apply(&mut self, schema: &'a Value, value: &Value, depth: usize) -> Result<Option<Value>, Exceeded> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(Exceeded);
        }
        if depth > MAX_DEPTH {
            return Ok(None);
        }
        let mut applied: Option<Value> = None;
        let combined = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for part in self.target(schema).into_iter().chain(combined) {
            let done = self.apply(part, applied.as_ref().unwrap_or(value), depth + 1)?;
            applied = done.or(applied);
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let Some(members) = applied.as_ref().unwrap_or(value).as_object() else { break };
                let member = match members.get(name) {
                    Some(member) => self.apply(property, member, depth + 1)?,
                    None => self.default_of(property)?,
                };
                let Some(member) = member else { continue };
                let mut changed = match applied.take() {
                    Some(applied) => applied,
                    None => self.copy(value)?,
                };
                if let Some(members) = changed.as_object_mut() {
                    members.insert(name.clone(), member);
                }
                applied = Some(changed);
            }
        }
        if let (Some(schema), Some(items)) = (schema.get("items"), applied.as_ref().unwrap_or(value).as_array()) {
            let done = items.iter().map(|item| self.apply(schema, item, depth + 1)).collect::<Result<Vec<_>, _>>()?;
            if done.iter().any(Option::is_some) {
                let items = items.iter().zip(done).map(|(item, done)| done.map_or_else(|| self.copy(item), Ok));
                applied = Some(items.collect::<Result<_, _>>()?);
            }
        }
        Ok(applied)
    }

    fn copy(&mut self, value: &Value) -> Result<Value, Exceeded> {
        self.copied += value.to_string().len();
        if self.copied > MAX_COPIED_BYTES { Err(Exceeded) } else { Ok(value.clone()) }
    }

    fn default_of(&mut self, property: &'a Value) -> Result<Option<Value>, Exceeded> {
        let own = property.get("default");
        let Some(default) = own.or_else(|| self.target(property)?.get("default")) else { return Ok(None) };
        self.added += default.to_string().len();
        if self.added > MAX_ADDED_BYTES { Err(Exceeded) } else { Ok(Some(default.clone())) }
    }

    /// The schema that this one's `$ref` refers to within the document.
    fn target(&self, schema: &Value) -> Option<&'a Value> {
        self.root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(schema: &Value, input: Value) -> Value {
        with_defaults(schema, Arc::new(input)).unwrap().as_ref().clone()
    }

    #[test]
    fn defaults_fill_only_missing_members() {
        let schema = json!({
            "properties": {
                "n": {"type": "integer", "default": 10},
                "page": {"$ref": "#/$defs/page"},
                "style": {"$ref": "#/$defs/style"},
                "rows": {"items": {"properties": {"unit": {"default": "kg"}}}},
                "free": {"type": "string"},
            },
            "allOf": [{"properties": {"lang": {"default": "en"}}}],
            "$defs": {"page": {"properties": {"size": {"default": 20}}}, "style": {"default": "plain"}},
        });
        assert_eq!(
            applied(&schema, json!({"page": {"at": 2}, "rows": [{}, {"unit": "lb"}, 5]})),
            json!({
                "n": 10, "page": {"at": 2, "size": 20}, "style": "plain", "rows": [{"unit": "kg"}, {"unit": "lb"}, 5],
                "lang": "en",
            })
        );
        let sent = json!({"n": null, "style": "", "lang": 0, "more": {}});
        assert_eq!(applied(&schema, sent.clone()), sent, "what was sent stays");
        assert_eq!(applied(&schema, json!("text")), json!("text"));
    }

    #[test]
    fn complete_input_is_not_copied() {
        let input = Arc::new(json!({"n": 1}));
        let same = with_defaults(&json!({"properties": {"n": {"default": 2}}}), Arc::clone(&input)).unwrap();
        assert!(Arc::ptr_eq(&input, &same));
    }

    #[test]
    fn hostile_schema_ends_within_limits() {
        let circle = json!({"$ref": "#", "properties": {"a": {"$ref": "#", "default": {}}}});
        let _ = with_defaults(&circle, Arc::new(json!({"a": {"a": {}}})));
        let doubling = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]});
        assert!(with_defaults(&doubling, Arc::new(json!({}))).is_err());
        let large = json!({"items": {"properties": {"x": {"default": "x".repeat(100_000)}}}});
        assert!(with_defaults(&large, Arc::new(json!(vec![json!({}); 20]))).is_err());
    }
}
