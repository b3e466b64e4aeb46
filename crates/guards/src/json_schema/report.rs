//! Reports errors of schemas and violations of values in short texts, so that a model can correct them.

use std::fmt::Write as _;

use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde::Serialize;
use serde_json::Value;

use super::{Listing, Patterns, Schema, TOO_LONG, Unchecked};
use longhaul_domain::cut;

/// Violations reported per value; a model corrects a few at a time.
const MAX_VIOLATIONS: usize = 20;
/// Bytes of one violation's message. The validator quotes the offending value, which may be the whole answer.
const MAX_MESSAGE_BYTES: usize = 300;

/// One violation of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// JSON pointer into the value; empty for the value itself.
    pub path: String,
    pub message: String,
}

/// The violations of a value, at most 20.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violations {
    pub listed: Vec<Violation>,
    /// True if there are more violations than listed.
    pub more: bool,
}

impl Violations {
    fn of_all(message: String) -> Self {
        Self { listed: vec![Violation { path: String::new(), message }], more: false }
    }

    /// One line per violation.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for Violation { path, message } in &self.listed {
            let at = if path.is_empty() { "the top level" } else { path };
            let _ = writeln!(text, "- at {at}: {message}");
        }
        if self.more {
            let _ = writeln!(text, "- more than {MAX_VIOLATIONS} violations; the rest is not listed");
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Finds violations, in document order of the schema. A value too large to check synchronously has that as its
/// violation.
pub fn violations(schema: &Schema, value: &Value) -> Option<Violations> {
    violations_that(schema, value, |_, _| true)
}

/// Finds the violations that `count` accepts by path and kind.
pub fn violations_that(
    schema: &Schema,
    value: &Value,
    count: impl Fn(&str, &ValidationErrorKind) -> bool + Clone + Send,
) -> Option<Violations> {
    match schema.check_briefly(value, move |errors| list(errors, &count)) {
        Ok(found) => found.and_then(whole),
        Err(error) => Some(Violations::of_all(error.to_string())),
    }
}

/// Like [`violations`], for values of any size: long checks run off the caller's thread.
///
/// # Errors
/// The value is too large for the schema.
pub async fn violations_of_large(schema: &Schema, value: &Value) -> Result<Option<Violations>, String> {
    loop {
        match schema.check(value, |errors| list(errors, &|_, _| true)).await {
            Ok(found) => return Ok(found.and_then(whole)),
            // Retry: other checks are short, and the queue for them is fair.
            Err(Unchecked::Busy) => tokio::task::yield_now().await,
            Err(error @ Unchecked::TooMuchWork) => return Err(error.to_string()),
        }
    }
}

fn whole(listing: Listing<Option<Violations>>) -> Option<Violations> {
    match listing {
        Listing::Whole(found) => found,
        Listing::TooLong => Some(Violations::of_all(TOO_LONG.into())),
    }
}

fn list(
    errors: &mut dyn Iterator<Item = ValidationError<'_>>,
    count: &impl Fn(&str, &ValidationErrorKind) -> bool,
) -> Option<Violations> {
    let mut errors = errors.filter(|error| count(error.instance_path().as_str(), error.kind()));
    let listed: Vec<_> = errors
        .by_ref()
        .take(MAX_VIOLATIONS)
        .map(|error| Violation {
            path: error.instance_path().to_string(),
            message: cut(&error.to_string(), MAX_MESSAGE_BYTES).into_owned(),
        })
        .collect();
    let more = errors.next().is_some();
    (!listed.is_empty()).then_some(Violations { listed, more })
}

/// Compiles a schema.
///
/// # Errors
/// The schema is invalid, exceeds a limit, or refers to another document.
pub fn compile(schema: &Value) -> Result<Schema, String> {
    compiled(schema, Patterns::LookAround)
}

/// Compiles a schema without patterns that need backtracking, because the API checks answers against it too.
///
/// # Errors
/// As for [`compile`], or a pattern needs backtracking.
pub fn compile_linear(schema: &Value) -> Result<Schema, String> {
    compiled(schema, Patterns::Linear)
}

fn compiled(schema: &Value, patterns: Patterns) -> Result<Schema, String> {
    Schema::compile(schema, patterns).map_err(|error| cut(&error, MAX_MESSAGE_BYTES).into_owned())
}

/// Checks that the schema of a tool's arguments describes an object.
///
/// # Errors
/// The type that the schema describes instead.
pub fn describes_object(schema: &Value) -> Result<(), String> {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => Ok(()),
        Some(other) => Err(format!("it describes a value of type `{other}`, not an object")),
        None => Err("it does not say `\"type\": \"object\"`".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn found(schema: &Value, value: &Value) -> Option<Violations> {
        violations(&compile(schema).unwrap(), value)
    }

    #[test]
    fn at_most_twenty_short_violations_are_listed() {
        let schema = json!({"type": "array", "items": {"type": "integer"}});
        let many: Vec<_> = (0..25).map(|_| "x".repeat(5_000)).collect();
        let found = found(&schema, &json!(many)).unwrap();
        assert_eq!((found.listed.len(), found.more), (20, true));
        assert_eq!(found.listed[19].path, "/19");
        let text = found.to_text();
        assert!(text.len() < 20 * 400, "{}", text.len());
        assert!(text.ends_with("the rest is not listed"), "{text}");
    }

    #[test]
    fn the_value_itself_is_called_the_top_level() {
        let found = found(&json!({"type": "object", "required": ["a"]}), &json!({})).unwrap();
        assert_eq!(found.to_text(), "- at the top level: \"a\" is a required property");
    }

    #[test]
    fn no_pattern_takes_exponential_time() {
        // The second pattern has look-around, so the backtracking engine runs it up to its step limit.
        for pattern in ["^(a+)+$", "^(?=(a+)+$)b"] {
            let schema = json!({"type": "string", "pattern": pattern});
            let started = std::time::Instant::now();
            assert!(found(&schema, &json!(format!("{}!", "a".repeat(60)))).is_some(), "{pattern}");
            assert!(started.elapsed() < Duration::from_secs(5), "{pattern} took {:?}", started.elapsed());
        }
        assert!(compile(&json!({"type": "string", "pattern": "^(?!x).*$"})).is_ok());
    }
}
