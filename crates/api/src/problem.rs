//! The body of every error response: problem+json (RFC 9457).

use serde::Serialize;
use utoipa::ToSchema;

/// Maximum length of a path or a message, in characters. Both may quote the request.
const MAX_TEXT_CHARS: usize = 400;

/// Body of every error response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// `urn:longhaul:error:<code>`.
    #[schema(example = "urn:longhaul:error:invalid_input")]
    pub r#type: String,
    /// HTTP reason phrase of the status.
    #[schema(example = "Unprocessable Entity")]
    pub title: String,
    /// HTTP status.
    #[schema(example = 422)]
    pub status: u16,
    /// Stable name of the error; docs/reference/api.md lists them.
    #[schema(example = "invalid_input")]
    pub code: String,
    /// Description for people. May change.
    pub detail: String,
    /// All violations of the request, at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Violation>, required = false)]
    pub errors: Option<Vec<Violation>>,
    /// The execution that the error is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub execution_id: Option<String>,
}

/// A violation in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Violation {
    /// JSON Pointer into the body; `/query/<name>` for a query parameter, `/header/<name>` for a header.
    #[schema(example = "/input/amount")]
    pub path: String,
    /// Description of the violation.
    #[schema(example = "\"twelve\" is not of type \"number\"")]
    pub message: String,
    /// Stable name of the violation, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, example = "stale_hash")]
    pub code: Option<&'static str>,
    /// Line of the text at `path`, from 1, if it is a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = usize, required = false, example = 2)]
    pub line: Option<usize>,
}

impl Violation {
    /// A violation without a stable name; both texts are cut to their maximum.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        let capped = |mut text: String| {
            if let Some((cut, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
                text.truncate(cut);
                text.push('…');
            }
            text
        };
        Self { path: capped(path.into()), message: capped(message.into()), code: None, line: None }
    }

    /// The violation, in a line of a template.
    #[must_use]
    pub(crate) fn in_line(self, line: Option<usize>) -> Self {
        Self { line, ..self }
    }

    /// A violation with a stable name.
    pub(crate) fn named(code: &'static str, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(path, message).with_code(code)
    }

    pub(crate) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }
}
