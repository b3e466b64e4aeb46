//! Compiles JSON Schemas written by callers, and lists the violations of a value with their paths.

use jsonschema::{ValidationError, error::ValidationErrorKind};
use longhaul_guards::json_schema::{Listing, Patterns, Schema, TOO_LONG, Unchecked};
use longhaul_sdk::json_pointer;
use serde_json::Value;

use crate::error::{ApiError, ApiResult, MAX_VIOLATIONS, Violation};

/// Message of a violation by a field that the schema does not have.
pub(crate) const UNKNOWN_FIELD: &str = "unknown field";

/// Compiles a schema. Refuses patterns that need backtracking, so that such a schema fails when its version is put.
///
/// # Errors
/// The schema is invalid, exceeds a limit, refers to another document, or has a pattern that only backtracking can
/// match.
pub(crate) fn compile(schema: &Value) -> Result<Schema, String> {
    Schema::compile(schema, Patterns::Linear)
}

/// Lists the violations of `value`, with paths below `root`, at most [`MAX_VIOLATIONS`]. A value that would take too
/// long to check is one violation at `root`.
///
/// # Errors
/// [`ApiError::Busy`]: other large values kept the checker busy for longer than a request waits.
pub(crate) async fn violations(schema: &Schema, value: &Value, root: &str) -> ApiResult<Vec<Violation>> {
    let below = root.to_owned();
    found(schema.check(value, move |errors| list(errors, &below)).await, root)
}

/// Like [`violations`] for the body of a request, whose size is limited: checks it on this thread.
///
/// # Errors
/// [`ApiError::Busy`]: no thread could be started.
pub(crate) fn violations_now(schema: &Schema, body: &Value) -> ApiResult<Vec<Violation>> {
    found(schema.check_briefly(body, |errors| list(errors, "")), "")
}

fn found(checked: Result<Option<Listing<Vec<Violation>>>, Unchecked>, root: &str) -> ApiResult<Vec<Violation>> {
    match checked {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(Listing::Whole(violations))) => Ok(violations),
        Ok(Some(Listing::TooLong)) => Ok(vec![Violation::new(root, TOO_LONG)]),
        Err(error @ Unchecked::TooMuchWork) => Ok(vec![Violation::new(root, error.to_string())]),
        Err(Unchecked::Busy) => Err(ApiError::Busy),
    }
}

fn list(errors: &mut dyn Iterator<Item = ValidationError<'_>>, root: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for error in errors {
        add(&error, root, &mut violations);
        if violations.len() >= MAX_VIOLATIONS {
            violations.truncate(MAX_VIOLATIONS);
            break;
        }
    }
    violations
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's kinds are open-ended; all others are told as they are"
)]
fn add(error: &ValidationError<'_>, root: &str, violations: &mut Vec<Violation>) {
    let at = format!("{root}{}", error.instance_path());
    match error.kind() {
        // Point to the field at fault, not to the object around it.
        ValidationErrorKind::AdditionalProperties { unexpected } => violations.extend(
            unexpected
                .iter()
                .take(MAX_VIOLATIONS)
                .map(|name| Violation::new(format!("{at}/{}", json_pointer::token(name)), UNKNOWN_FIELD)),
        ),
        ValidationErrorKind::Required { property: Value::String(name) } => {
            violations.push(Violation::new(format!("{at}/{}", json_pointer::token(name)), "is required"));
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            match (named_values(context), branch_of_its_type(error, context)) {
                (Some(names), _) => violations.push(Violation::new(at, format!("must be one of {names}"))),
                (None, Some(branch)) => branch.iter().for_each(|error| add(error, root, violations)),
                (None, None) => violations.push(Violation::new(at, error.to_string())),
            }
        }
        _ => violations.push(Violation::new(at, error.to_string())),
    }
}

/// The values, if each alternative is one value: an enum with descriptions.
fn named_values(branches: &[Vec<ValidationError<'_>>]) -> Option<String> {
    let value = |error: &ValidationError<'_>| {
        if let ValidationErrorKind::Constant { expected_value } = error.kind() {
            return Some(expected_value.to_string());
        }
        let ValidationErrorKind::Enum { options } = error.kind() else { return None };
        Some(options.as_array()?.iter().map(Value::to_string).collect::<Vec<_>>().join(", "))
    };
    Some(branches.iter().map(|branch| branch.iter().find_map(value)).collect::<Option<Vec<_>>>()?.join(", "))
}

/// The only alternative for a value of this type, such as an object where an object or null may stand.
fn branch_of_its_type<'e>(
    error: &ValidationError<'_>,
    branches: &'e [Vec<ValidationError<'static>>],
) -> Option<&'e Vec<ValidationError<'static>>> {
    let is_of_another_type = |of: &ValidationError<'_>| {
        matches!(of.kind(), ValidationErrorKind::Type { .. }) && of.instance_path() == error.instance_path()
    };
    let mut fitting = branches.iter().filter(|branch| !branch.iter().any(is_of_another_type));
    fitting.next().filter(|_| fitting.next().is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn paths_name_the_field_at_fault() {
        let schema = json!({
            "type": "object", "required": ["id"], "additionalProperties": false,
            "properties": {"id": {"type": "string"}, "lines": {"type": "array", "items": {"type": "number"}}}
        });
        let validator = compile(&schema).unwrap();
        let found = violations(&validator, &json!({"lines": [1, "x", true], "other": 1}), "/input").await.unwrap();
        let mut paths: Vec<_> = found.iter().map(|violation| violation.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/input/id", "/input/lines/1", "/input/lines/2", "/input/other"]);
        assert!(violations(&validator, &json!({"id": "a"}), "/input").await.unwrap().is_empty());
    }
}
