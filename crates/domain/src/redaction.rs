//! Redaction of a call's arguments for reviewers and records: values at the pointers the agent names, and values
//! that the tool's schema marks as secret. The call itself and its hashes use the real values.

use std::collections::BTreeSet;

use longhaul_sdk::json_pointer;
use serde_json::Value;

/// Placeholder of a redacted value.
pub const REDACTED: &str = "[redacted]";
/// Maximum number of `$ref`s followed without descending into the value. More indicate a cycle.
const MAX_HOPS: usize = 16;

/// Locations of secrets in the arguments of one tool.
#[derive(Debug, Clone, Copy)]
pub struct Secrets<'a> {
    /// JSON pointers; `*` matches any member or item.
    pub pointers: &'a [String],
    /// Schema of the arguments. `"x-secret": true` or `"writeOnly": true` marks a secret.
    pub schema: Option<&'a Value>,
}

/// Returns true if `text` is a JSON pointer to a value inside the arguments.
#[must_use]
pub fn is_pointer(text: &str) -> bool {
    text.len() > 1 && text.starts_with('/')
}

impl Secrets<'_> {
    /// Returns true if the arguments hold no secret.
    #[must_use]
    pub fn are_none(&self, arguments: &Value) -> bool {
        self.places(arguments).is_empty()
    }

    /// Returns the arguments with every secret replaced by [`REDACTED`].
    #[must_use]
    pub fn hide(&self, mut arguments: Value) -> Value {
        for place in self.places(&arguments) {
            if let Some(value) = arguments.pointer_mut(&place) {
                *value = Value::String(REDACTED.to_owned());
            }
        }
        arguments
    }

    /// Restores the values of `real` where `edited` still holds the placeholder.
    ///
    /// # Errors
    /// Fails with the pointers of placeholders that stand for no secret.
    pub fn put_back(&self, edited: &mut Value, real: &Value) -> Result<(), Vec<String>> {
        let places = self.places(real);
        for place in &places {
            if let (Some(value), Some(real)) = (edited.pointer_mut(place), real.pointer(place))
                && value.as_str() == Some(REDACTED)
            {
                *value = real.clone();
            }
        }
        let mut left = Vec::new();
        visit(edited, &mut String::new(), &mut |place, value| {
            if value.as_str() == Some(REDACTED) && !places.contains(place) {
                left.push(place.to_owned());
            }
        });
        if left.is_empty() { Ok(()) } else { Err(left) }
    }

    /// Pointers to all secrets in the arguments.
    #[must_use]
    pub fn places(&self, arguments: &Value) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for pointer in self.pointers.iter().filter(|pointer| is_pointer(pointer)) {
            let parts: Vec<String> =
                pointer[1..].split('/').map(|part| json_pointer::name(part).into_owned()).collect();
            follow(arguments, &parts, &mut String::new(), &mut found);
        }
        if let Some(schema) = self.schema {
            Marked { root: schema, found: &mut found }.walk(schema, arguments, &mut String::new(), 0);
        }
        found
    }
}

/// Members or items of a value, with their names or indexes.
fn children(value: &Value) -> Vec<(String, &Value)> {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn visit(value: &Value, place: &mut String, told: &mut impl FnMut(&str, &Value)) {
    told(place, value);
    for (name, child) in children(value) {
        below(place, &name, |place| visit(child, place, told));
    }
}

fn follow(value: &Value, parts: &[String], place: &mut String, found: &mut BTreeSet<String>) {
    let Some((part, rest)) = parts.split_first() else {
        found.insert(place.clone());
        return;
    };
    for (name, child) in children(value) {
        if part == "*" || *part == name {
            below(place, &name, |place| follow(child, rest, place, found));
        }
    }
}

/// Walks a schema along a value and collects marked locations.
struct Marked<'a> {
    root: &'a Value,
    found: &'a mut BTreeSet<String>,
}

impl Marked<'_> {
    fn walk(&mut self, schema: &Value, value: &Value, place: &mut String, hops: usize) {
        let Some(schema) = schema.as_object().filter(|_| hops < MAX_HOPS) else { return };
        let is_true = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        if is_true("x-secret") || is_true("writeOnly") {
            self.found.insert(place.clone());
            return;
        }
        if let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#')) {
            let root = self.root;
            if let Some(target) = root.pointer(pointer) {
                self.walk(target, value, place, hops + 1);
            }
        }
        // A value marked by any branch counts as secret, even if that branch does not apply.
        for part in ["allOf", "anyOf", "oneOf"] {
            for schema in schema.get(part).and_then(Value::as_array).into_iter().flatten() {
                self.walk(schema, value, place, hops + 1);
            }
        }
        for part in ["if", "then", "else"] {
            if let Some(schema) = schema.get(part) {
                self.walk(schema, value, place, hops + 1);
            }
        }
        let is_list = value.is_array();
        for (at, (name, child)) in children(value).into_iter().enumerate() {
            let of_name = if is_list {
                schema.get("prefixItems").and_then(|items| items.get(at)).or_else(|| schema.get("items"))
            } else {
                schema
                    .get("properties")
                    .and_then(|properties| properties.get(&name))
                    .or_else(|| schema.get("additionalProperties"))
            };
            if let Some(schema) = of_name {
                below(place, &name, |place| self.walk(schema, child, place, 0));
            }
        }
    }
}

/// Calls `within` with the pointer extended by `name`.
fn below(place: &mut String, name: &str, within: impl FnOnce(&mut String)) {
    let length = place.len();
    place.push('/');
    place.push_str(&json_pointer::token(name));
    within(place);
    place.truncate(length);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn only_named_or_marked_fields_are_hidden() {
        let schema = json!({
            "properties": {
                "password": {"writeOnly": true},
                "card": {"$ref": "#/$defs/card"},
                "cards": {"items": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/card"}]}},
                "loop": {"$ref": "#/properties/loop"},
            },
            "additionalProperties": {"x-secret": false},
            "$defs": {"card": {"properties": {"number": {"x-secret": true}}}},
        });
        let named = pointers(&["/token", "/auth/*/key", "/a~1b", "", "/none"]);
        let secrets = Secrets { pointers: &named, schema: Some(&schema) };
        let arguments = json!({
            "token": {"deep": 1}, "auth": [{"key": 1, "name": "n"}, {"key": 2}], "a/b": 1, "password": "p", "open": "o",
            "card": {"number": 1, "name": "A"}, "cards": [{"number": 2}, null], "loop": 1,
        });
        let x = REDACTED;
        assert_eq!(
            secrets.hide(arguments.clone()),
            json!({
                "token": x, "auth": [{"key": x, "name": "n"}, {"key": x}], "a/b": x, "password": x, "open": "o",
                "card": {"number": x, "name": "A"}, "cards": [{"number": x}, null], "loop": 1,
            })
        );
        let none = Secrets { pointers: &[], schema: None };
        assert!(none.are_none(&arguments) && !secrets.are_none(&arguments));
        assert_eq!(none.hide(arguments.clone()), arguments);
    }

    #[test]
    fn edit_restores_only_the_hidden_values() {
        let named = pointers(&["/token"]);
        let secrets = Secrets { pointers: &named, schema: None };
        let real = json!({"token": "t", "amount": 1});
        let put_back = |mut edited: Value| secrets.put_back(&mut edited, &real).map(|()| edited);
        assert_eq!(put_back(json!({"token": REDACTED, "amount": 2})), Ok(json!({"token": "t", "amount": 2})));
        assert_eq!(put_back(json!({"token": "new"})), Ok(json!({"token": "new"})));
        assert_eq!(put_back(json!({"amount": 2})), Ok(json!({"amount": 2})), "left out is left out");
        assert_eq!(put_back(json!({"amount": REDACTED})), Err(vec!["/amount".to_owned()]));
        // A secret whose real value equals the placeholder is restored unchanged.
        let odd = json!({"token": REDACTED});
        let mut edited = odd.clone();
        assert_eq!(secrets.put_back(&mut edited, &odd), Ok(()));
    }
}
