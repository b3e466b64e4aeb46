//! A request as the server received it, with readers for tests.

use std::{fmt, ops::Deref, sync::OnceLock};

use axum::{body::Bytes, http::HeaderMap};
use serde_json::Value;

/// Wire format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Chat completions.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

#[derive(Debug, Clone)]
pub struct Captured {
    pub dialect: Dialect,
    pub headers: HeaderMap,
    pub idempotency_key: Option<String>,
    /// Exact bytes of the body.
    pub raw: Bytes,
    /// Body; null if it is not JSON.
    pub body: Body,
}

/// A body, parsed when it is first read.
#[derive(Clone)]
pub struct Body {
    raw: Bytes,
    parsed: OnceLock<Value>,
}

impl Deref for Body {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.parsed.get_or_init(|| parse(&self.raw))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl Captured {
    pub(super) fn new(path: &str, headers: HeaderMap, raw: Bytes) -> Self {
        let dialect = if path.ends_with("/messages") { Dialect::Anthropic } else { Dialect::OpenAi };
        let body = Body { raw: raw.clone(), parsed: OnceLock::new() };
        let mut captured = Self { dialect, headers, idempotency_key: None, raw, body };
        captured.idempotency_key = captured.header("idempotency-key").map(str::to_owned);
        captured
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns true if the reply is asked for as a stream.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.body["stream"] == true
    }

    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Number of replies already in the transcript.
    #[must_use]
    pub fn replies(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    /// Text of the last message, of whichever role, tool results included.
    #[must_use]
    pub fn last_text(&self) -> String {
        self.messages().last().map(text_of).unwrap_or_default()
    }

    /// What was said last: the last paragraph of the last message, because several messages in a row are sent as one.
    #[must_use]
    pub fn last_said(&self) -> String {
        let text = self.last_text();
        text.rsplit_once("\n\n").map_or(text.as_str(), |(_, last)| last).to_owned()
    }

    /// Names of the tools it offers.
    #[must_use]
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool["name"].as_str().or_else(|| tool["function"]["name"].as_str())).collect()
    }
}

/// Parses a body. A `Value` cannot hold half a surrogate pair, which JSON can; such an escape is U+FFFD here.
fn parse(raw: &[u8]) -> Value {
    if let Ok(body) = serde_json::from_slice(raw) {
        return body;
    }
    let mut whole = raw.to_vec();
    for at in 0..whole.len().saturating_sub(5) {
        let is_half = whole[at..].starts_with(br"\u")
            && matches!(whole[at + 2], b'd' | b'D')
            && matches!(whole[at + 3], b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F')
            && whole[at + 4..at + 6].iter().all(u8::is_ascii_hexdigit);
        if is_half {
            whole[at + 2..at + 6].copy_from_slice(b"fffd");
        }
    }
    serde_json::from_slice(&whole).unwrap_or_default()
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str().or_else(|| part["content"].as_str()))
            .collect::<Vec<_>>()
            .join("\n"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}
