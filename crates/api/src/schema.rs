//! JSON Schemas that callers wrote: compiled so that no pattern can stall us and nothing is fetched, violations with paths.

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use serde_json::Value;

use crate::{
    error::{MAX_VIOLATIONS, Violation},
    extract::escape_pointer,
};

/// Compiles a schema.
///
/// # Errors
/// It is no schema, refers to another document, or has a pattern that only backtracking can match; the text says what.
pub(crate) fn compile(schema: &Value) -> Result<Validator, String> {
    jsonschema::options()
        // Patterns run in linear time; what needs backtracking is refused here, when the version is put.
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .build(schema)
        .map_err(|error| error.to_string())
}

/// Everything that is wrong with `value`, with paths below `root`; at most [`MAX_VIOLATIONS`].
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's kinds are open-ended; all others are told as they are"
)]
pub(crate) fn violations(validator: &Validator, value: &Value, root: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for error in validator.iter_errors(value) {
        let at = format!("{root}{}", error.instance_path());
        match error.kind() {
            // The path of the field at fault, not of the object around it.
            ValidationErrorKind::AdditionalProperties { unexpected } => violations.extend(
                unexpected.iter().map(|name| Violation::new(format!("{at}/{}", escape_pointer(name)), "unknown field")),
            ),
            ValidationErrorKind::Required { property: Value::String(name) } => {
                violations.push(Violation::new(format!("{at}/{}", escape_pointer(name)), "is required"));
            }
            _ => violations.push(Violation::new(at, error.to_string())),
        }
        if violations.len() >= MAX_VIOLATIONS {
            violations.truncate(MAX_VIOLATIONS);
            break;
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_name_the_field_at_fault() {
        let schema = json!({
            "type": "object", "required": ["id"], "additionalProperties": false,
            "properties": {"id": {"type": "string"}, "lines": {"type": "array", "items": {"type": "number"}}}
        });
        let validator = compile(&schema).unwrap();
        let found = violations(&validator, &json!({"lines": [1, "x", true], "other": 1}), "/input");
        let mut paths: Vec<_> = found.iter().map(|violation| violation.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/input/id", "/input/lines/1", "/input/lines/2", "/input/other"]);
        assert!(violations(&validator, &json!({"id": "a"}), "/input").is_empty());
    }

    #[test]
    fn schemas_that_would_fetch_or_backtrack_are_refused() {
        for bad in [
            json!({"$ref": "http://169.254.169.254/latest"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"type": "string", "pattern": "^(?=a)b"}),
            json!({"type": "no such type"}),
        ] {
            assert!(compile(&bad).is_err(), "{bad}");
        }
    }
}
