//! Outcomes of tool calls, in the form shown to the model.

use std::{borrow::Cow, time::Duration};

use longhaul_sdk::{Failure, ToolEffect};
use serde_json::{Value, json};

use crate::contract::Noted;

/// Bytes of a call's arguments repeated in an error. The model has them in its own message anyway.
const MAX_ECHO_BYTES: usize = 4_096;
/// Bytes of an error's message. Keeps the error well-formed JSON under every limit that an agent may set.
const MAX_MESSAGE_BYTES: usize = 8_192;

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

/// The outcome of a tool call. Every call has one, so that every call of a reply gets a result.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    /// The text shown to the model, within the agent's limit.
    pub text: String,
    /// The complete result, if `text` is truncated.
    pub whole: Option<String>,
    /// The call's alternative place that the tool chose for its result.
    pub destination: Option<String>,
    /// The kind of error, if `text` is one.
    pub error: Option<CallErrorKind>,
    /// True if the tool was not invoked, so the call certainly had no effect.
    pub(crate) is_unsent: bool,
    /// The failure that ends the run, if the run cannot continue.
    pub ends_run: Option<Failure>,
    /// Run time of the tool.
    pub duration: Duration,
    /// The declared effect of the tool, which decides if the call may be repeated.
    pub effect: ToolEffect,
    /// The item for the record of a contract execution.
    pub(crate) noted: Option<Box<Noted>>,
}

impl CallOutcome {
    /// Returns true if the model is shown an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }

    /// The complete result.
    #[must_use]
    pub fn whole(&self) -> &str {
        self.whole.as_deref().unwrap_or(&self.text)
    }
}

/// An error of a call that was not run, or whose tool failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallError {
    pub(crate) kind: CallErrorKind,
    pub(crate) message: String,
    pub(crate) details: Value,
}

impl CallError {
    pub(crate) fn new(kind: CallErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), details: Value::Null }
    }

    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// The text for the model: the error, and the call as the model wrote it.
    pub(crate) fn to_text(&self, tool: &str, arguments: &str) -> String {
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

/// Truncates `text` to `max` bytes on a character boundary and appends how many bytes are missing.
pub(crate) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    // Enough for the appended sentence, whose two numbers vary in width.
    let room = max.saturating_sub(64);
    let mut end = room;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}… [cut: {} of {} bytes left out]", &text[..end], text.len() - end, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_on_a_character_boundary() {
        for max in [64, 100, 101, 102, 103] {
            let cut = cut(&"é€😀".repeat(100), max).into_owned();
            assert!(cut.len() <= max, "{max}: {} bytes: {cut}", cut.len());
            assert!(cut.ends_with("bytes left out]"), "{cut}");
        }
        assert_eq!(cut("short", 5), "short");
    }

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
