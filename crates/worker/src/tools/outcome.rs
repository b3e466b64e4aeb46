//! What a tool call came to, as the model is told it.

use std::{borrow::Cow, time::Duration};

use longhaul_sdk::{Failure, ToolEffect};
use serde_json::{Value, json};

use crate::contract::Noted;

/// Bytes of the call's arguments repeated in an error; the model has them in its own message anyway.
const MAX_ECHO_BYTES: usize = 4_096;
/// Bytes of an error's message, so that the error stays one well-formed JSON value under every limit an agent may set.
const MAX_MESSAGE_BYTES: usize = 8_192;

/// Why a call has no result. The names are part of the text a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallErrorKind {
    /// The call itself is wrong: unknown tool, arguments that are not JSON or do not fit.
    Structural,
    /// The tool ran and failed.
    Runtime,
    /// The tool took longer than it may. It may have taken effect.
    Timeout,
    /// A person said no.
    Rejected,
    /// What it reads would have come from a call that failed or did not run.
    DependencyFailed,
    /// It waits for calls that wait for it.
    Cycle,
    /// It reads what nothing wrote.
    UnresolvedReference,
    /// It may have run before a crash, and nobody can say.
    OutcomeUnknown,
    /// The run ended before it did.
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

/// What a tool call came to. Every call has one, so that every call of a reply gets a result.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    /// Shown to the model; within the agent's limit.
    pub text: String,
    /// The whole result, when `text` had to be cut.
    pub whole: Option<String>,
    /// Which of the call's alternative places the tool chose for its result.
    pub destination: Option<String>,
    /// Set when `text` is an error.
    pub error: Option<CallErrorKind>,
    /// Its tool was not asked: the call certainly had no effect.
    pub(crate) is_unsent: bool,
    /// Set when the run cannot go on.
    pub ends_run: Option<Failure>,
    /// How long the tool ran.
    pub duration: Duration,
    /// What running it again would do.
    pub effect: ToolEffect,
    /// What the record of a contract execution lists of it.
    pub(crate) noted: Option<Box<Noted>>,
}

impl CallOutcome {
    /// Whether the model is told that the call failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }

    /// The result, uncut.
    #[must_use]
    pub fn whole(&self) -> &str {
        self.whole.as_deref().unwrap_or(&self.text)
    }
}

/// An error about a call that never reached, or came back from, its tool.
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

    /// The text for the model: the error beside the call as the model wrote it.
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

/// `text` within `max` bytes; what is longer ends, on a character boundary, with a sentence that says how much is missing.
pub(crate) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    // The sentence holds two numbers of unknown width; this much room always suffices.
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
    fn a_long_text_is_cut_on_a_character_boundary_and_says_so() {
        for max in [64, 100, 101, 102, 103] {
            let cut = cut(&"é€😀".repeat(100), max).into_owned();
            assert!(cut.len() <= max, "{max}: {} bytes: {cut}", cut.len());
            assert!(cut.ends_with("bytes left out]"), "{cut}");
        }
        assert_eq!(cut("short", 5), "short");
    }

    #[test]
    fn an_error_repeats_the_call_as_it_was_written() {
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
    fn an_error_about_huge_arguments_stays_small_and_well_formed() {
        let error = CallError::new(CallErrorKind::Runtime, "m".repeat(1 << 20));
        let text = error.to_text("t", &format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20)));
        assert!(text.len() < 16_384, "{}", text.len());
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
}
