//! Parses error responses of model endpoints, removes secrets from them and classifies them.
//!
//! Error bodies differ by provider and gateway; of an unknown shape only the status is used. Texts are scrubbed
//! and truncated because they are stored with the failure and shown to users.

use std::sync::LazyLock;

use regex::Regex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Longest error message kept, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// Longest error type, code or request id kept, in characters.
const MAX_NAME_CHARS: usize = 100;

/// The error that an endpoint reported, scrubbed of secrets and truncated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// HTTP status; absent for an error inside a reply.
    pub status: Option<u16>,
    /// The provider's error type, for instance `overloaded_error`.
    pub kind: Option<String>,
    /// The provider's error code, for instance `context_length_exceeded`.
    pub code: Option<String>,
    /// The provider's error message.
    pub message: Option<String>,
    /// The provider's request id.
    pub request_id: Option<String>,
}

impl Answer {
    /// Parses an error body. `status` is absent for an error inside a reply. An unknown shape yields only the
    /// status.
    pub fn read(status: Option<u16>, body: &[u8], scrub: &Scrub) -> Self {
        let mut answer = Self { status, ..Self::default() };
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return answer;
        };
        // {"error": {…}} (OpenAI, Anthropic), {"error": "text"} (Ollama), {"error": "code", "message": "text"}
        // (services of the agent-execution contract), or the error itself (vLLM).
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(&body);
        if let Value::String(text) = error {
            match body.get("message").and_then(Value::as_str) {
                Some(message) => {
                    answer.code = Some(scrub.clean(text, MAX_NAME_CHARS));
                    answer.message = Some(scrub.clean(message, MAX_MESSAGE_CHARS));
                }
                None => answer.message = Some(scrub.clean(text, MAX_MESSAGE_CHARS)),
            }
            return answer;
        }
        let name = |at: &Value| match at {
            Value::String(name) => Some(scrub.clean(name, MAX_NAME_CHARS)),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        answer.kind = error.get("type").and_then(name);
        answer.code = error.get("code").and_then(name);
        answer.message = error.get("message").and_then(Value::as_str).map(|text| scrub.clean(text, MAX_MESSAGE_CHARS));
        answer.request_id = body.get("request_id").and_then(name);
        answer
    }

    pub(crate) fn says_quota_exhausted(&self) -> bool {
        const NAMES: [&str; 7] = [
            "insufficient_quota",
            "quota_exceeded",
            "usage_limit_reached",
            "billing_error",
            "billing_hard_limit_reached",
            "billing_not_active",
            "insufficient_credits",
        ];
        const SENTENCES: [&str; 2] = ["credit balance is too low", "exceeded your current quota"];
        self.status == Some(402) || self.is_named(&NAMES) || self.says(&SENTENCES)
    }

    pub(crate) fn says_context_too_long(&self) -> bool {
        const NAMES: [&str; 4] = [
            "context_length_exceeded",
            "exceed_context_size_error",
            "request_too_large",
            "model_context_window_exceeded",
        ];
        const SENTENCES: [&str; 8] = [
            "prompt is too long",
            "maximum context length",
            "exceed context limit",
            "exceeds the available context size",
            "exceeds the context window",
            "context length exceeded",
            "input is too long for requested model",
            // LiteLLM's exception, in front of whatever its provider said.
            "contextwindowexceedederror",
        ];
        // A body too large for the endpoint is cured like a full context window: by compression.
        self.status == Some(413)
            || self.is_named(&NAMES)
            // Match sentences in client errors only: a 5xx body may quote anything.
            || (self.status.is_none_or(|status| status < 500 && status != 429) && self.says(&SENTENCES))
    }

    fn is_named(&self, names: &[&str]) -> bool {
        [&self.kind, &self.code].into_iter().flatten().any(|name| names.contains(&name.as_str()))
    }

    fn says(&self, sentences: &[&str]) -> bool {
        let Some(message) = &self.message else { return false };
        let message = message.to_ascii_lowercase();
        sentences.iter().any(|sentence| message.contains(sentence))
    }

    /// Structured fields for the failure's `detail`.
    pub fn detail(&self) -> Value {
        let mut detail = serde_json::Map::new();
        if let Some(status) = self.status {
            detail.insert("status".into(), status.into());
        }
        let texts =
            [("type", &self.kind), ("code", &self.code), ("message", &self.message), ("request_id", &self.request_id)];
        for (name, text) in texts {
            if let Some(text) = text {
                detail.insert(name.into(), text.as_str().into());
            }
        }
        Value::Object(detail)
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            Some(status) => write!(f, "status {status}")?,
            None => f.write_str("inside the reply")?,
        }
        // Gateways repeat the status as the code.
        let status = self.status.map(|status| status.to_string());
        let mut names = [&self.code, &self.kind].into_iter().flatten();
        if let Some(name) = names.find(|name| Some(*name) != status.as_ref()) {
            write!(f, ", {name}")?;
        }
        Ok(())
    }
}

/// Removes secrets from text written by an endpoint.
#[derive(Debug, Default)]
pub struct Scrub {
    secrets: Vec<SecretString>,
}

/// Matches keys and tokens by shape, also masked ones: an endpoint may echo a key that this worker does not know.
static KEY_SHAPES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\b(?:sk|pk|rk)-[\w*.\-]{6,}|\bbearer\s+[\w.~+/=\-]{6,}").ok());

const REDACTED: &str = "[redacted]";

impl Scrub {
    /// Takes the secrets that requests carry. Secrets under 4 bytes are ignored: replacing them would garble
    /// the text.
    pub fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        Self { secrets: secrets.into_iter().filter(|secret| secret.expose_secret().len() >= 4).collect() }
    }

    fn clean(&self, text: &str, max_chars: usize) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.expose_secret(), REDACTED);
        }
        if let Some(shapes) = KEY_SHAPES.as_ref() {
            text = shapes.replace_all(&text, REDACTED).into_owned();
        }
        match text.char_indices().nth(max_chars) {
            Some((cut, _)) => format!("{}…", &text[..cut]),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_sdk::FailureCode;

    use super::*;
    use crate::error::ModelError;

    fn code_of(status: u16, body: &str) -> FailureCode {
        ModelError::of_answer(Answer::read(Some(status), body.as_bytes(), &Scrub::default()), None).code()
    }

    #[test]
    fn code_that_repeats_the_status_is_left_out() {
        let shown = |body: &str| Answer::read(Some(400), body.as_bytes(), &Scrub::default()).to_string();
        assert_eq!(shown(r#"{"error": {"code": "400", "type": null}}"#), "status 400");
        assert_eq!(shown(r#"{"error": {"code": "400", "type": "bad_model"}}"#), "status 400, bad_model");
        assert_eq!(shown(r#"{"error": {"code": "no_model"}}"#), "status 400, no_model");
    }

    #[test]
    fn window_and_quota_are_recognised_in_every_dialect() {
        let context = [
            (
                400,
                r#"{"error":{"message":"x","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 1 + 2 > 2"}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}"#,
            ),
            (400, r#"{"error":{"code":400,"message":"x","type":"exceed_context_size_error"}}"#),
            (
                400,
                r#"{"error":{"message":"litellm.ContextWindowExceededError: 5000 input tokens","type":"invalid_request_error","param":null,"code":"400"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"litellm.ContextWindowExceededError: x"}}"#,
            ),
            (413, "<html>too large</html>"),
        ];
        for (status, body) in context {
            assert_eq!(code_of(status, body), FailureCode::CONTEXT_LIMIT_EXCEEDED, "{body}");
        }
        let quota = [
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
            ),
            (402, "{}"),
        ];
        for (status, body) in quota {
            assert_eq!(code_of(status, body), FailureCode::MODEL_QUOTA_EXHAUSTED, "{body}");
        }
    }

    #[test]
    fn other_errors_are_classified_by_status() {
        for status in [408, 429] {
            assert_eq!(code_of(status, "{}"), FailureCode::MODEL_RATE_LIMITED);
        }
        for status in [500, 502, 503, 529] {
            assert_eq!(code_of(status, "<html>prompt is too long</html>"), FailureCode::MODEL_API_ERROR);
        }
        for status in [302, 400, 401, 403, 404, 409, 422] {
            assert_eq!(code_of(status, r#"{"error":"nope"}"#), FailureCode::MODEL_REQUEST_REFUSED);
        }
        let quoted = r#"{"error":{"message":"worker died on: prompt is too long"}}"#;
        assert_eq!(code_of(500, quoted), FailureCode::MODEL_API_ERROR);
    }

    #[test]
    fn message_is_scrubbed_and_truncated() {
        let scrub = Scrub::new([SecretString::from("tok-en-123"), SecretString::from("ab")]);
        let body = serde_json::json!({ "error": {
            "message": format!("bad key tok-en-123 or sk-proj-ab**********yz, about {}", "é".repeat(600)),
            "code": "k tok-en-123",
        }});
        let answer = Answer::read(Some(401), body.to_string().as_bytes(), &scrub);
        let message = answer.message.unwrap();
        assert!(message.starts_with("bad key [redacted] or [redacted], about éé"), "{message}");
        assert_eq!(message.chars().count(), MAX_MESSAGE_CHARS + 1);
        assert_eq!(answer.code.unwrap(), "k [redacted]");
    }
}
