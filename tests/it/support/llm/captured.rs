//! A request as the server received it, with readers for tests.

use axum::{body::Bytes, http::HeaderMap};
use serde_json::Value;

/// Wire format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Chat completions.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

#[derive(Debug, Clone)]
pub(crate) struct Captured {
    pub(crate) dialect: Dialect,
    pub(crate) headers: HeaderMap,
    pub(crate) idempotency_key: Option<String>,
    /// Exact bytes of the body.
    pub(crate) raw: Bytes,
    /// Body; null if it is not JSON.
    pub(crate) body: Value,
}

impl Captured {
    pub(super) fn new(path: &str, headers: HeaderMap, raw: Bytes) -> Self {
        let dialect = if path.ends_with("/messages") { Dialect::Anthropic } else { Dialect::OpenAi };
        let body = parse(&raw);
        let mut captured = Self { dialect, headers, idempotency_key: None, raw, body };
        captured.idempotency_key = captured.header("idempotency-key").map(str::to_owned);
        captured
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns true if the reply is asked for as a stream.
    pub(crate) fn streams(&self) -> bool {
        self.body["stream"] == true
    }

    pub(crate) fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Number of replies already in the transcript.
    pub(crate) fn replies(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    /// Text of the last message, of whichever role, tool results included.
    pub(crate) fn last_text(&self) -> String {
        self.messages().last().map(text_of).unwrap_or_default()
    }

    /// Names of the tools it offers.
    pub(crate) fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool["name"].as_str().or_else(|| tool["function"]["name"].as_str())).collect()
    }
}

/// Parses a body. A `Value` cannot hold half a surrogate pair, which JSON can; such an escape is U+FFFD here.
fn parse(raw: &[u8]) -> Value {
    if let Ok(body) = serde_json::from_slice(raw) {
        return body;
    }
    let half = regex::bytes::Regex::new(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}").unwrap();
    serde_json::from_slice(&half.replace_all(raw, &br"\ufffd"[..])).unwrap_or_default()
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str().or_else(|| part["content"].as_str()))
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}
