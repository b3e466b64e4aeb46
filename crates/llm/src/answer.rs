//! Parses error responses of model endpoints, removes secrets from them and classifies them.
//!
//! Error bodies differ by provider and gateway; of an unknown shape the beginning is the message. Texts are scrubbed
//! and truncated because they are stored with the failure and shown to users.

use std::{num::NonZeroU32, sync::LazyLock};

use regex::Regex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Longest error message kept, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

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
    /// The model's context window in tokens, if the error tells it.
    pub window: Option<NonZeroU32>,
}

impl Answer {
    /// Parses the error body of a model's endpoint. Its words are found under more names than those of a service, and
    /// of an unknown shape the beginning of the body counts.
    pub(crate) fn of_model(status: Option<u16>, body: &[u8], scrub: &Scrub) -> Self {
        let mut answer = Self::read(status, body, scrub);
        let read: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = error_of(&read);
        let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        answer.kind = answer.kind.or_else(|| Some(scrub.clean(text("status")?, MAX_NAME_CHARS)));
        if answer.message.is_none() {
            let whole = String::from_utf8_lossy(body);
            let named = ["detail", "msg", "error_message", "reason"].into_iter().find_map(text);
            let words = named.or_else(|| Some(whole.trim()).filter(|whole| !matches!(*whole, "" | "{}")));
            answer.message = words.map(|words| scrub.clean(words, MAX_MESSAGE_CHARS));
        }
        let window = error.get("n_ctx").and_then(Value::as_u64).or_else(|| window_in(answer.message.as_deref()?));
        answer.window = window.and_then(|tokens| NonZeroU32::new(u32::try_from(tokens).ok()?));
        answer
    }

    /// Parses an error body. `status` is absent for an error inside a reply. An unknown shape yields only the status.
    pub fn read(status: Option<u16>, body: &[u8], scrub: &Scrub) -> Self {
        let mut answer = Self { status, ..Self::default() };
        let Ok(read) = serde_json::from_slice::<Value>(body) else { return answer };
        let (body, error) = (unlisted(&read), error_of(&read));
        let name = |at: &Value| match at {
            Value::String(name) => Some(scrub.clean(name, MAX_NAME_CHARS)),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let message = |text: &Value| Some(scrub.clean(text.as_str()?.trim(), MAX_MESSAGE_CHARS));
        answer.request_id = body.get("request_id").and_then(name);
        // {"error": "code", "message": "text"} (services of the agent-execution contract), {"error": "text"} (Ollama).
        (answer.code, answer.message) = match (error, body.get("message")) {
            (Value::String(_), Some(words)) if words.is_string() => (name(error), message(words)),
            (Value::String(_), _) => (None, message(error)),
            (error, _) => (error.get("code").and_then(name), error.get("message").and_then(message)),
        };
        answer.message = answer.message.filter(|message| !message.is_empty());
        answer.kind = error.get("type").and_then(name);
        answer
    }

    /// The status, or what stands for it inside a reply: a code that is one, or a name with one meaning.
    pub(crate) fn told_status(&self) -> Option<u16> {
        const NAMES: [(&str, u16); 17] = [
            ("rate_limit_error", 429),
            ("rate_limit_exceeded", 429),
            ("too_many_requests", 429),
            ("resource_exhausted", 429),
            ("throttling_exception", 429),
            ("overloaded_error", 529),
            ("overloaded", 529),
            ("server_overloaded", 529),
            ("engine_overloaded", 529),
            ("unavailable", 503),
            ("service_unavailable", 503),
            ("invalid_request_error", 400),
            ("invalid_argument", 400),
            ("bad_request", 400),
            ("authentication_error", 401),
            ("permission_error", 403),
            ("not_found_error", 404),
        ];
        let of_name = |name: &String| {
            let name = name.to_ascii_lowercase();
            let number = name.parse().ok().filter(|status| (400..600).contains(status));
            number.or_else(|| NAMES.iter().find(|(known, _)| *known == name).map(|(_, status)| *status))
        };
        self.status.or_else(|| [&self.code, &self.kind].into_iter().flatten().find_map(of_name))
    }

    /// True if the endpoint has too much to do at the moment.
    pub(crate) fn says_overloaded(&self) -> bool {
        matches!(self.told_status(), Some(503 | 529)) || self.says(&["overloaded", "at capacity"])
    }

    /// True if the model wrote a call that the server does not pass on.
    pub(crate) fn says_bad_call(&self) -> bool {
        const NAMES: [&str; 4] =
            ["tool_use_failed", "malformed_function_call", "invalid_tool_call", "tool_call_parse_error"];
        const SENTENCES: [&str; 3] =
            ["failed to call a function", "tool call validation failed", "failed to parse tool call"];
        self.is_named(&NAMES) || self.says(&SENTENCES)
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
        self.told_status() == Some(402) || self.is_named(&NAMES) || self.says(&SENTENCES)
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
        self.told_status() == Some(413)
            || self.is_named(&NAMES)
            // Match sentences in client errors only: a 5xx body may quote anything.
            || (self.told_status().is_none_or(|status| status < 500 && status != 429) && self.says(&SENTENCES))
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

    /// The beginning of a model's own words, without what looks like a key.
    pub(crate) fn words(&self, text: &str) -> String {
        self.clean(text.trim(), MAX_MESSAGE_CHARS)
    }
}

/// The body, or the first item of a list, which Gemini puts around it.
fn unlisted(body: &Value) -> &Value {
    body.as_array().and_then(|listed| listed.first()).unwrap_or(body)
}

/// The error in a body: `{"error": …}` (OpenAI, Anthropic), `{"choices": [{"error": …}]}` (`OpenRouter`), or the body
/// itself (vLLM).
fn error_of(body: &Value) -> &Value {
    let body = unlisted(body);
    let mut places = [body.get("error"), body.pointer("/choices/0/error")].into_iter().flatten();
    places.find(|error| !error.is_null()).unwrap_or(body)
}

/// The context window in a message such as `maximum context length is 8192 tokens`, `210000 tokens > 200000 maximum`
/// or `available context size (4096 tokens)`.
fn window_in(text: &str) -> Option<u64> {
    let said = WINDOW.iter().find_map(|said| said.as_ref()?.captures(text)?.get(1))?;
    said.as_str().replace([',', '_'], "").parse().ok().filter(|tokens| *tokens >= MIN_WINDOW)
}

/// Smaller numbers in a message are no window, in tokens.
const MIN_WINDOW: u64 = 256;

/// What is compared comes first: a message may name the sum before the window.
static WINDOW: LazyLock<[Option<Regex>; 3]> = LazyLock::new(|| {
    let said = [
        r">\s*(\d[\d,_]*)",
        r"(?i)context (?:length|size|window|limit)[^\d]{0,30}(\d[\d,_]*)",
        r"(?i)limit (?:is|of)\s*(\d[\d,_]*)\s*tokens",
    ];
    said.map(|said| Regex::new(said).ok())
});

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
    fn exceeded_window_is_recognised_in_every_dialect() {
        let context = [
            (
                400,
                concat!(
                    r#"{"error":{"message":"x","type":"invalid_request_error","param":"messages","#,
                    r#""code":"context_length_exceeded"}}"#
                ),
            ),
            (
                400,
                concat!(
                    r#"{"type":"error","error":{"type":"invalid_request_error","#,
                    r#""message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#
                ),
            ),
            (
                400,
                concat!(
                    r#"{"type":"error","error":{"type":"invalid_request_error","#,
                    r#""message":"input length and `max_tokens` exceed context limit: 1 + 2 > 2"}}"#
                ),
            ),
            (
                400,
                concat!(
                    r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","#,
                    r#""type":"BadRequestError","code":400}"#
                ),
            ),
            (400, r#"{"error":{"code":400,"message":"x","type":"exceed_context_size_error"}}"#),
            (
                400,
                concat!(
                    r#"{"error":{"message":"litellm.ContextWindowExceededError: 5000 input tokens","#,
                    r#""type":"invalid_request_error","param":null,"code":"400"}}"#
                ),
            ),
            (
                400,
                concat!(
                    r#"{"type":"error","error":{"type":"invalid_request_error","#,
                    r#""message":"litellm.ContextWindowExceededError: x"}}"#
                ),
            ),
            (413, "<html>too large</html>"),
        ];
        for (status, body) in context {
            assert_eq!(code_of(status, body), FailureCode::CONTEXT_LIMIT_EXCEEDED, "{body}");
        }
    }

    #[test]
    fn spent_quota_is_recognised_in_every_dialect() {
        let quota = [
            (
                429,
                concat!(
                    r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","#,
                    r#""code":"insufficient_quota"}}"#
                ),
            ),
            (
                400,
                concat!(
                    r#"{"type":"error","error":{"type":"invalid_request_error","#,
                    r#""message":"Your credit balance is too low to access the Anthropic API."}}"#
                ),
            ),
            (402, "{}"),
        ];
        for (status, body) in quota {
            assert_eq!(code_of(status, body), FailureCode::MODEL_QUOTA_EXHAUSTED, "{body}");
        }
    }

    #[test]
    fn window_is_read_from_the_words_of_every_dialect() {
        let window = |body: &str| {
            let answer = Answer::of_model(Some(400), body.as_bytes(), &Scrub::default());
            answer.window.map(NonZeroU32::get)
        };
        for (body, tokens) in [
            (
                concat!(
                    r#"{"error":{"code":400,"message":"x","type":"exceed_context_size_error","n_prompt_tokens":9000,"#,
                    r#""n_ctx":8192}}"#
                ),
                8_192,
            ),
            (
                concat!(
                    r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your "#,
                    r#"messages resulted in 60012 tokens."}}"#
                ),
                8_192,
            ),
            (r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#, 200_000),
            (
                concat!(
                    r#"{"error":{"message":"input length and `max_tokens` exceed context limit: "#,
                    r#"199211 + 20000 > 200000"}}"#
                ),
                200_000,
            ),
            (
                concat!(
                    r#"{"error":{"message":"the request exceeds the available context size "#,
                    r#"(4,096 tokens), try increasing it"}}"#
                ),
                4_096,
            ),
        ] {
            assert_eq!(window(body), Some(tokens), "{body}");
        }
        assert_eq!(window(r#"{"error":{"message":"context_length_exceeded"}}"#), None);
    }

    #[test]
    fn trouble_means_the_same_inside_a_reply() {
        let inside = |body: &str| {
            let error = ModelError::of_answer(Answer::of_model(None, body.as_bytes(), &Scrub::default()), None);
            (error.code(), error.class(), error.retry_after())
        };
        let limited = r#"{"error":{"code":429,"message":"slow down, try again in 1s"}}"#;
        let second = Some(std::time::Duration::from_secs(1));
        assert_eq!(inside(limited), (FailureCode::MODEL_RATE_LIMITED, FailureCode::MODEL_RATE_LIMITED.class(), second));
        for (body, code) in [
            (r#"{"type":"error","error":{"type":"rate_limit_error"}}"#, FailureCode::MODEL_RATE_LIMITED),
            (r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]"#, FailureCode::MODEL_RATE_LIMITED),
            (r#"{"error":{"code":"400","message":"no such field"}}"#, FailureCode::MODEL_REQUEST_REFUSED),
            (r#"{"error":{"code":402,"message":"x"}}"#, FailureCode::MODEL_QUOTA_EXHAUSTED),
            (r#"{"type":"error","error":{"type":"overloaded_error"}}"#, FailureCode::MODEL_API_ERROR),
            (r#"{"error":null,"choices":[{"error":{"code":400,"message":"x"}}]}"#, FailureCode::MODEL_REQUEST_REFUSED),
            (
                r#"{"error":{"code":"tool_use_failed","message":"Failed to call a function."}}"#,
                FailureCode::MODEL_MALFORMED_REPLY,
            ),
        ] {
            assert_eq!(inside(body).0, code, "{body}");
        }
    }

    #[test]
    fn overload_is_one_wherever_it_is_told() {
        for body in [
            r#"{"error":{"type":"overloaded_error"}}"#,
            r#"{"error":{"message":"The engine is currently overloaded"}}"#,
            r#"{"error":{"code":"503"}}"#,
        ] {
            let error = ModelError::of_answer(Answer::of_model(None, body.as_bytes(), &Scrub::default()), None);
            assert!(crate::health::is_throttle(&error), "{body}");
        }
    }

    #[test]
    fn only_message_of_a_service_is_kept() {
        let words = |body: &str| Answer::read(None, body.as_bytes(), &Scrub::default()).detail();
        for body in [r#"{"detail":"a stack"}"#, r#"{"error":{"reason":"a stack","status":"x"}}"#, "a stack"] {
            assert_eq!(words(body), serde_json::json!({}), "{body}");
        }
        let named = serde_json::json!({"code": "busy", "message": "later"});
        assert_eq!(words(r#"{"error":"busy","message":"later"}"#), named);
    }

    #[test]
    fn words_of_every_shape_reach_the_failure() {
        let words =
            |body: &str| Answer::of_model(Some(400), body.as_bytes(), &Scrub::default()).message.unwrap_or_default();
        assert_eq!(words(r#"[{"error":{"code":400,"message":"bad key","status":"INVALID_ARGUMENT"}}]"#), "bad key");
        assert_eq!(words("upstream connect error"), "upstream connect error");
        assert_eq!(words(r#"{"detail":"not found"}"#), "not found");
        assert!(words(r#"{"detail":[{"msg":"field required"}]}"#).contains("field required"));
        assert_eq!((words(""), words("{}")), (String::new(), String::new()));
        assert_eq!(words(&"x".repeat(900)).chars().count(), MAX_MESSAGE_CHARS + 1);
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
        let answer = Answer::of_model(Some(401), body.to_string().as_bytes(), &scrub);
        let message = answer.message.unwrap();
        assert!(message.starts_with("bad key [redacted] or [redacted], about éé"), "{message}");
        assert_eq!(message.chars().count(), MAX_MESSAGE_CHARS + 1);
        assert_eq!(answer.code.unwrap(), "k [redacted]");
    }
}
