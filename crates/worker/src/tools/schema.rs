//! JSON Schemas compiled once, and what is wrong with a value, said so that a model can correct it.
//!
//! Schemas come from users and tool servers: nothing is fetched for a `$ref`, and no pattern can take exponential time.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use jsonschema::{PatternOptions, ValidationError, ValidationOptions, Validator, error::ValidationErrorKind};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::outcome::cut;

/// Violations reported of one value; a model corrects a few at a time.
const MAX_VIOLATIONS: usize = 20;
/// Bytes of one violation's text; the library quotes the offending value, which can be the whole answer.
const MAX_MESSAGE_BYTES: usize = 300;
/// Compiled schemas kept. A worker serves a few hundred tools and definitions; the rest is compiled again.
const MAX_CACHED: usize = 512;
/// Steps of one look-around pattern on one string.
const BACKTRACK_LIMIT: usize = 50_000;
/// Bytes of one compiled pattern.
const PATTERN_SIZE_LIMIT: usize = 1 << 20;

/// One way in which a value does not satisfy a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Violation {
    /// JSON pointer into the value; empty for the value itself.
    pub(crate) path: String,
    /// What is wrong there.
    pub(crate) message: String,
}

/// What is wrong with a value: at most [`MAX_VIOLATIONS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violations {
    pub(crate) listed: Vec<Violation>,
    /// There are more than are listed.
    pub(crate) more: bool,
}

impl Violations {
    /// One line per violation.
    pub(crate) fn to_text(&self) -> String {
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

/// Looks for violations, in document order of the schema.
pub(crate) fn violations(validator: &Validator, value: &Value) -> Option<Violations> {
    violations_that(validator, value, |_, _| true)
}

/// The violations that `count`, which is given each one's path and kind.
pub(crate) fn violations_that(
    validator: &Validator,
    value: &Value,
    count: impl Fn(&str, &ValidationErrorKind) -> bool,
) -> Option<Violations> {
    let counts = |error: &ValidationError<'_>| count(error.instance_path().as_str(), error.kind());
    let mut errors = validator.iter_errors(value).filter(counts);
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

/// Compiles any schema.
///
/// # Errors
/// It is not a valid schema, or refers to another document.
pub(crate) fn compile(schema: &Value) -> Result<Validator, String> {
    compile_linear(schema).or_else(|_| {
        // Patterns with look-around, which generators for other languages write, need the backtracking engine.
        let bounded = PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT).size_limit(PATTERN_SIZE_LIMIT);
        ValidationOptions::default()
            .with_pattern_options(bounded)
            .build(schema)
            .map_err(|error| cut(&error.to_string(), MAX_MESSAGE_BYTES).into_owned())
    })
}

/// Compiles a schema none of whose patterns needs backtracking: the API checks answers against it too.
///
/// # Errors
/// It is not a valid schema, refers to another document, or has such a pattern.
pub(crate) fn compile_linear(schema: &Value) -> Result<Validator, String> {
    let linear = PatternOptions::regex().size_limit(PATTERN_SIZE_LIMIT);
    ValidationOptions::default()
        .with_pattern_options(linear)
        .build(schema)
        .map_err(|error| cut(&error.to_string(), MAX_MESSAGE_BYTES).into_owned())
}

/// Checks that a schema is one of a tool's arguments, which are an object.
///
/// # Errors
/// What it describes instead.
pub(crate) fn describes_object(schema: &Value) -> Result<(), String> {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => Ok(()),
        Some(other) => Err(format!("it describes a value of type `{other}`, not an object")),
        None => Err("it does not say `\"type\": \"object\"`".into()),
    }
}

/// Compiled schemas by content; bounded, the oldest leaves first. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SchemaCache(Arc<Mutex<Cached>>);

#[derive(Debug, Default)]
struct Cached {
    by_hash: HashMap<[u8; 32], Arc<Validator>>,
    order: VecDeque<[u8; 32]>,
}

impl SchemaCache {
    /// The compiled form of `schema`.
    ///
    /// # Errors
    /// It is not a valid schema, or refers to another document.
    pub(crate) fn get(&self, schema: &Value) -> Result<Arc<Validator>, String> {
        let hash: [u8; 32] = Sha256::digest(schema.to_string()).into();
        if let Some(validator) = self.lock().by_hash.get(&hash) {
            return Ok(Arc::clone(validator));
        }
        // Compiled outside the lock: two executions may both do it once.
        let validator = Arc::new(compile(schema)?);
        let mut cached = self.lock();
        if cached.by_hash.insert(hash, Arc::clone(&validator)).is_none() {
            cached.order.push_back(hash);
        }
        if cached.order.len() > MAX_CACHED
            && let Some(oldest) = cached.order.pop_front()
        {
            cached.by_hash.remove(&oldest);
        }
        Ok(validator)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cached> {
        // A panic cannot leave it inconsistent in a way that matters: a lost entry is compiled again.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn nothing_is_fetched_for_a_reference() {
        for target in ["http://169.254.169.254/schema", "file:///etc/passwd"] {
            assert!(compile(&json!({"$ref": target})).is_err(), "{target}");
        }
    }

    #[test]
    fn no_pattern_takes_exponential_time() {
        // The second has look-around, so it runs in the backtracking engine, up to its limit.
        for pattern in ["^(a+)+$", "^(?=(a+)+$)b"] {
            let schema = json!({"type": "string", "pattern": pattern});
            let started = std::time::Instant::now();
            assert!(found(&schema, &json!(format!("{}!", "a".repeat(60)))).is_some(), "{pattern}");
            assert!(started.elapsed() < Duration::from_secs(5), "{pattern} took {:?}", started.elapsed());
        }
        assert!(compile(&json!({"type": "string", "pattern": "^(?!x).*$"})).is_ok());
    }

    #[test]
    fn the_cache_is_bounded_and_compiles_once() {
        let cache = SchemaCache::default();
        let first = cache.get(&json!({"const": 0})).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.get(&json!({"const": 0})).unwrap()));
        for number in 1..=MAX_CACHED {
            cache.get(&json!({ "const": number })).unwrap();
        }
        assert_eq!(cache.lock().by_hash.len(), MAX_CACHED);
        assert!(!Arc::ptr_eq(&first, &cache.get(&json!({"const": 0})).unwrap()));
        assert!(cache.get(&json!({"type": 1})).is_err());
    }
}
