//! Members of a request, read by type. A wrong type or a value out of its bounds is a fault that names the path.

use std::ops::RangeInclusive;

use longhaul_sdk::numbers;
use serde_json::{Map, Value};

use crate::{Fault, members::holds_nul, responses::fault::brief};

/// An object of a request, and the path to it, such as `input[0]`; the path of the body is empty.
pub(super) struct Members<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Members<'a> {
    pub(super) fn of(value: &'a Value, path: String) -> Result<Self, Fault> {
        let Value::Object(map) = value else { return Err(wrong(path, "an object", value)) };
        Ok(Self { map, path })
    }

    /// Path of a member.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(super) fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// A member that is there; null counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(self.at(name), "a text", other)),
        }
    }

    /// A text of at most `max` characters.
    pub(super) fn short_text(&self, name: &str, max: usize) -> Result<Option<&'a str>, Fault> {
        let text = self.text(name)?;
        match text {
            Some(text) if text.chars().nth(max).is_some() => {
                Err(Fault::invalid(self.at(name), format!("`{}` is longer than {max} characters.", self.at(name))))
            }
            _ => Ok(text),
        }
    }

    pub(super) fn required_text(&self, name: &str) -> Result<&'a str, Fault> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong(self.at(name), "a boolean", other)),
        }
    }

    pub(super) fn count(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, Fault> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| range.contains(count));
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        count.map(Some).ok_or_else(|| wrong(self.at(name), &expected, value))
    }

    pub(super) fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Fault> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| range.contains(number));
        let expected = format!("a number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| wrong(self.at(name), &expected, value))
    }

    /// A list of at most `max` entries; empty if absent.
    pub(super) fn list(&self, name: &str, max: usize) -> Result<&'a [Value], Fault> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::Array(entries)) if entries.len() <= max => Ok(entries),
            Some(Value::Array(_)) => {
                Err(Fault::invalid(self.at(name), format!("`{}` has more than {max} entries.", self.at(name))))
            }
            Some(other) => Err(wrong(self.at(name), "a list", other)),
        }
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<Members<'a>>, Fault> {
        self.get(name).map(|value| Members::of(value, self.at(name))).transpose()
    }

    /// One of the texts of `known`.
    pub(super) fn one_of(&self, name: &str, known: &[&'static str]) -> Result<Option<&'static str>, Fault> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = known.iter().find(|one| **one == text).copied();
        found.map(Some).ok_or_else(|| {
            let known = known.join("`, `");
            Fault::invalid(self.at(name), format!("`{}` is `{}`: use one of `{known}`.", self.at(name), brief(text)))
        })
    }

    /// A name by OpenAI's pattern for functions and formats: 1 to 64 letters, digits, underscores and dashes.
    pub(super) fn name(&self, name: &str) -> Result<&'a str, Fault> {
        let text = self.required_text(name)?;
        let is_name = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        is_name.then_some(text).ok_or_else(|| {
            let message = format!("`{}` does not match the pattern ^[a-zA-Z0-9_-]{{1,64}}$.", self.at(name));
            Fault::invalid(self.at(name), message)
        })
    }

    pub(super) fn missing(&self, name: &str) -> Fault {
        let fault = Fault::invalid(self.at(name), format!("Missing required parameter: `{}`.", self.at(name)));
        Fault { code: Some("missing_required_parameter".to_owned()), ..fault }
    }
}

/// Refuses what no part of the record can hold: U+0000, which Postgres stores in no text, and numbers of endless
/// length.
pub(super) fn check_storable(body: &Map<String, Value>) -> Result<(), Fault> {
    for (name, value) in body {
        if name.contains('\0') || holds_nul(value) {
            let name = name.replace('\0', "");
            return Err(Fault::invalid(name.as_str(), format!("`{}` holds the character U+0000.", brief(&name))));
        }
        if let Err(oversized) = numbers::check(value) {
            return Err(Fault::invalid(format!("{}{}", brief(name), oversized.path), oversized.to_string()));
        }
    }
    Ok(())
}

fn wrong(path: String, expected: &str, found: &Value) -> Fault {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    let subject = if path.is_empty() { "The body".to_owned() } else { format!("`{path}`") };
    let fault = Fault::invalid(path, format!("{subject} has to be {expected}; it is {found}."));
    Fault { code: Some("invalid_type".to_owned()), param: fault.param.filter(|path| !path.is_empty()), ..fault }
}
