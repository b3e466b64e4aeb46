//! Parses a model's answer as JSON and refuses values that could not be stored.
//!
//! ```
//! use longhaul_sdk::answer::{self, AnswerError};
//! use serde_json::json;
//!
//! let fenced = "```json\n{\"total\": 12}\n```";
//! assert_eq!(answer::parse(fenced)?, json!({"total": 12}));
//! assert_eq!(answer::parse("\"\\u0000\""), Err(AnswerError::Nul));
//! # Ok::<(), AnswerError>(())
//! ```

use serde_json::{Value, json};

use crate::numbers::{self, OversizedNumber};

/// The reason why an answer is not JSON that can be stored. The text is meant for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The answer is not JSON.
    #[error("{0}")]
    NotJson(String),
    /// A string or key contains U+0000, which Postgres text cannot store.
    #[error("a string contains the character U+0000")]
    Nul,
    /// A number is too long to be kept exactly.
    #[error("{}", .0.with_path())]
    Oversized(#[from] OversizedNumber),
}

/// Parses an answer. Any JSON value counts; a byte-order mark and one surrounding code fence are removed first.
///
/// ```
/// use longhaul_sdk::answer;
///
/// assert_eq!(answer::parse(" [1, 2] ")?, serde_json::json!([1, 2]));
/// assert!(answer::parse("The total is 12.").is_err());
/// # Ok::<(), answer::AnswerError>(())
/// ```
///
/// # Errors
/// The text is not JSON, is nested deeper than 128 levels, or contains an oversized number, a lone surrogate or a
/// NUL.
pub fn parse(answer: &str) -> Result<Value, AnswerError> {
    let value: Value = serde_json::from_str(unfenced(answer)).map_err(|e| AnswerError::NotJson(e.to_string()))?;
    numbers::check(&value)?;
    if holds_nul(&value) { Err(AnswerError::Nul) } else { Ok(value) }
}

/// Returns the output of an accepted answer: its JSON, or `{"response": text}` if the text is no JSON.
///
/// ```
/// use longhaul_sdk::answer;
/// use serde_json::json;
///
/// assert_eq!(answer::output("{\"total\": 12}"), json!({"total": 12}));
/// assert_eq!(answer::output("The total is 12."), json!({"response": "The total is 12."}));
/// ```
#[must_use]
pub fn output(answer: &str) -> Value {
    parse(answer).unwrap_or_else(|_| json!({ "response": answer.replace('\0', "\u{fffd}") }))
}

fn unfenced(answer: &str) -> &str {
    let text = answer.trim_start_matches('\u{feff}').trim();
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    // The rest of the opening line is the fence's language tag.
    let (tag, body) = inner.split_once('\n').unwrap_or(("", inner));
    if tag.trim().chars().all(|c| c.is_ascii_alphanumeric()) && !body.contains("```") { body.trim() } else { text }
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(fields) => fields.iter().any(|(key, item)| key.contains('\0') || holds_nul(item)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_json_value_is_accepted() {
        for text in
            ["{}", "[1]", "\"s\"", " 12 ", "true", "null", "\u{feff}{}", "```json\n{\"a\":1}\n```", "```\n[]\n```"]
        {
            assert!(parse(text).is_ok(), "{text}");
        }
        assert_eq!(parse("{\"a\":1,\"a\":2}"), Ok(json!({"a": 2})));
    }

    #[test]
    fn invalid_or_unstorable_json_is_refused() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in ["", "  ", "{'a':1}", "[1,]", "{} and prose", "prose {}", "NaN", "[Infinity]", "\"\\ud800\"", &deep]
        {
            assert!(matches!(parse(text), Err(AnswerError::NotJson(_))), "{}", &text[..text.len().min(40)]);
        }
        for oversized in ["1e99999".to_owned(), "9".repeat(129)] {
            assert!(matches!(parse(&oversized), Err(AnswerError::Oversized(_))), "{oversized}");
        }
        assert_eq!(parse("{\"a\":\"x\\u0000\"}"), Err(AnswerError::Nul));
        assert_eq!(parse("[{\"\\u0000\":1}]"), Err(AnswerError::Nul));
    }

    #[test]
    fn text_without_json_becomes_a_response() {
        assert_eq!(output("hello"), json!({"response": "hello"}));
        assert_eq!(output("[0]"), json!([0]));
    }
}
