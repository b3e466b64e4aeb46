//! A tool call as the model proposed it, and the errors of calls that the model is shown.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cut::cut;

/// Bytes of a call's arguments repeated in an error. The model has them in its own message anyway.
const MAX_ECHO_BYTES: usize = 4_096;
/// Bytes of an error's message. Keeps the error well-formed JSON under every limit that an agent may set.
const MAX_MESSAGE_BYTES: usize = 8_192;

/// A tool call as the model proposed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Unique within its reply; generated if the provider omitted or repeated it.
    pub id: String,
    pub name: String,
    /// The exact text that the model wrote, possibly not JSON. `{}` if it wrote nothing.
    pub arguments: String,
}

/// Kinds of errors of a tool call. The names are part of the text shown to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallErrorKind {
    /// The call is invalid: unknown tool, or arguments that are not JSON or violate the schema.
    Structural,
    /// The tool ran and failed.
    Runtime,
    /// The tool exceeded its timeout. It may have taken effect.
    Timeout,
    /// A person rejected the call.
    Rejected,
    /// The call reads the result of a call that failed or did not run.
    DependencyFailed,
    /// The call depends on itself through other calls.
    Cycle,
    /// The call reads a value that no call has written.
    UnresolvedReference,
    /// The call may have run before a crash; its outcome cannot be determined.
    OutcomeUnknown,
    /// The run ended before the call did.
    Cancelled,
}

impl CallErrorKind {
    /// The name in the text and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Structural => "structural",
            Self::Runtime => "runtime",
            Self::Timeout => "timeout",
            Self::Rejected => "rejected",
            Self::DependencyFailed => "dependency_failed",
            Self::Cycle => "cycle",
            Self::UnresolvedReference => "unresolved_reference",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An error of a call that was not run, or whose tool failed.
#[derive(Debug, Clone, PartialEq)]
pub struct CallError {
    pub kind: CallErrorKind,
    pub message: String,
    pub details: Value,
}

impl CallError {
    pub fn new(kind: CallErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), details: Value::Null }
    }

    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// The text for the model: the error, and the call as the model wrote it.
    pub fn to_text(&self, tool: &str, arguments: &str) -> String {
        let mut error = json!({
            "type": self.kind.as_str(),
            "message": cut(&self.message, MAX_MESSAGE_BYTES),
        });
        if !self.details.is_null() {
            error["details"] = self.details.clone();
        }
        let arguments = if arguments.len() > MAX_ECHO_BYTES {
            json!(cut(arguments, MAX_ECHO_BYTES))
        } else {
            serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments))
        };
        json!({ "error": error, "call": { "_tool": cut(tool, 128), "arguments": arguments } }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_repeats_the_call_as_written() {
        let error = CallError::new(CallErrorKind::Structural, "no").with_details(json!([1]));
        let text: Value = serde_json::from_str(&error.to_text("t", "{\"a\":1}")).unwrap();
        assert_eq!(
            text,
            json!({
                "error": {"type": "structural", "message": "no", "details": [1]},
                "call": {"_tool": "t", "arguments": {"a": 1}},
            })
        );
        let text: Value = serde_json::from_str(&error.to_text("t", "{oops")).unwrap();
        assert_eq!(text["call"]["arguments"], "{oops");
    }

    #[test]
    fn error_about_huge_arguments_stays_small_json() {
        let error = CallError::new(CallErrorKind::Runtime, "m".repeat(1 << 20));
        let text = error.to_text("t", &format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20)));
        assert!(text.len() < 16_384, "{}", text.len());
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
}
