//! Provider-independent types of a model call: messages, calls, usage, requests and replies.
//!
//! The journal stores a [`Message`] as the exact bytes of [`Message::to_bytes`], and the wire request is a
//! function of those bytes alone, so that a resumed execution sends the same request. Therefore the arguments
//! of calls are text and never parsed values: `1e2`, `-0.0`, duplicate keys and lone-surrogate escapes stay as
//! the model wrote them. The wire formats are in `openai/wire.rs` and `anthropic/wire.rs`.

use std::sync::Arc;

use longhaul_sdk::{ToolSpec, spec::ModelSpec};
use serde::{Deserialize, Serialize};

/// One entry of a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Instructions.
    System {
        /// The rendered prompt.
        text: String,
    },
    /// Text from the caller, a validator or the loop.
    User {
        /// The text as sent to the model.
        text: String,
    },
    /// A message of the caller's own conversation that fits no other role: several parts, or a tool's output.
    Given {
        /// The role, as the caller names it.
        speaker: String,
        /// The parts, joined by newlines.
        text: String,
        parts: Vec<String>,
    },
    /// One reply of the model.
    Assistant {
        /// The reply's text; empty if it holds only calls.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The calls, in the order written.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// The reply in the provider's own blocks, if text and calls cannot rebuild it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<NativeBlocks>,
    },
    /// The result of one call.
    Tool {
        /// The id of the answered call.
        call_id: String,
        name: String,
        /// The text for the model, already truncated to the size limit.
        text: String,
        /// True if the call failed; the text then describes the failure.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Message {
    /// Returns a reply that holds only text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), calls: Vec::new(), native: None }
    }

    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into() }
    }

    pub fn system(text: impl Into<String>) -> Self {
        Self::System { text: text.into() }
    }

    /// The bytes that are stored, hashed and replayed: JSON with a fixed field order.
    ///
    /// # Errors
    /// Serialisation fails, which cannot happen for a message of strings.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    /// Parses the bytes written by [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// The bytes are not a message of this build.
    pub fn from_bytes(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// The message's text, for any role.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::System { text }
            | Self::User { text }
            | Self::Given { text, .. }
            | Self::Assistant { text, .. }
            | Self::Tool { text, .. } => text,
        }
    }

    /// The calls of a reply; empty for any other role.
    #[must_use]
    pub fn calls(&self) -> &[ToolCall] {
        match self {
            Self::Assistant { calls, .. } => calls,
            Self::System { .. } | Self::User { .. } | Self::Given { .. } | Self::Tool { .. } => &[],
        }
    }

    /// The role's name, as stored.
    #[must_use]
    pub fn role(&self) -> &'static str {
        match self {
            Self::System { .. } => "system",
            Self::User { .. } => "user",
            Self::Given { .. } => "given",
            Self::Assistant { .. } => "assistant",
            Self::Tool { .. } => "tool",
        }
    }

    /// Estimated tokens at four bytes each, for limits when no provider has counted.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        let calls: usize = self.calls().iter().map(|call| call.name.len() + call.arguments.len()).sum();
        estimate_tokens(self.text().len() + calls)
    }
}

/// Estimated tokens of `bytes` bytes of text, at four bytes each, rounded up.
#[must_use]
pub fn estimate_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

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

/// A reply in its provider's own blocks, kept if they hold more than text and calls (signed thinking, unusual order).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeBlocks {
    /// The blocks' wire format; other formats ignore the blocks and use text and calls.
    pub format: NativeFormat,
    /// The JSON text of each block, in order, sent back unchanged.
    pub blocks: Vec<String>,
}

/// A wire format whose replies may have to be sent back in their own blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NativeFormat {
    /// Content blocks of Anthropic's messages API.
    Anthropic,
}

/// Tokens of one model call, as counted by the provider. Absent means not reported, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// All input, including the cached part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// All output, including thinking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// The part of the input read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// The part of the input written to the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
}

/// The reason for the end of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The reply is complete.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The output limit or context window was reached; the last call may be truncated or missing.
    Length,
    /// The model declined. Only inside [`ModelError::Refused`](super::ModelError::Refused).
    Refusal,
    /// A content filter of the provider stopped it. Only inside [`ModelError::Refused`](super::ModelError::Refused).
    ContentFilter,
    /// An unknown reason, treated as a complete reply.
    Other(String),
}

/// The tools that the model may or must call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolChoice<'a> {
    /// The model decides.
    #[default]
    Auto,
    /// At least one tool.
    Required,
    /// This tool.
    Named(&'a str),
    /// No tool, only text.
    None,
}

/// One model call.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    pub model: &'a ModelSpec,
    /// The whole transcript. Every result follows the reply whose call it answers.
    pub messages: &'a [Arc<Message>],
    /// The tools that the model may call; sent in order of their names.
    pub tools: &'a [ToolSpec],
    pub tool_choice: ToolChoice<'a>,
    /// Derived from execution and step; the same for every repetition of this call.
    pub idempotency_key: &'a str,
    /// The W3C trace context to continue.
    pub traceparent: Option<&'a str>,
    /// Reply limit granted by a budget, in tokens. Replaces every limit in the agent's settings, including `extra`.
    pub max_output_tokens: Option<u32>,
    /// Context window in tokens, if known. Only the scripted model enforces it; providers enforce their own.
    pub context_tokens: Option<u32>,
    /// JSON schema that the provider enforces on the answer's text, if it can.
    pub output_schema: Option<&'a serde_json::Value>,
}

/// A model's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReply {
    /// Always [`Message::Assistant`].
    pub message: Message,
    pub finish: FinishReason,
    /// Index of the call whose arguments the output limit truncated; it must not run. Only with
    /// [`FinishReason::Length`], and always the last call.
    pub unfinished_call: Option<usize>,
    pub usage: Usage,
    /// The model's name as reported by the provider.
    pub model: Option<String>,
    /// The provider's request id, for support.
    pub request_id: Option<String>,
}

/// A part of a reply while it arrives. The returned reply repeats all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEvent {
    TextDelta(String),
    /// A call has begun; its arguments are not yet known.
    CallStarted {
        /// Index among the calls of the reply.
        index: usize,
        id: String,
        name: String,
    },
    /// A call's arguments are complete. The stream may still fail.
    CallCompleted {
        /// Index among the calls of the reply.
        index: usize,
        call: ToolCall,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_survives_its_stored_bytes() {
        let call =
            ToolCall { id: "a".into(), name: "f".into(), arguments: r#"{"n":1e2,"n":-0.0,"s":"\ud800"}"#.into() };
        let native = NativeBlocks { format: NativeFormat::Anthropic, blocks: vec![r#"{"type": "thinking"}"#.into()] };
        let tool = |is_error| Message::Tool { call_id: "a".into(), name: "f".into(), text: "\u{0}é".into(), is_error };
        let forms = [
            (Message::system("s"), r#"{"role":"system","text":"s"}"#.to_owned()),
            (Message::user("u"), r#"{"role":"user","text":"u"}"#.to_owned()),
            (Message::assistant("t"), r#"{"role":"assistant","text":"t"}"#.to_owned()),
            (
                Message::Assistant { text: String::new(), calls: vec![call.clone()], native: Some(native) },
                format!(
                    r#"{{"role":"assistant","calls":[{{"id":"a","name":"f","arguments":{}}}],"native":{{"format":"anthropic","blocks":["{{\"type\": \"thinking\"}}"]}}}}"#,
                    serde_json::to_string(&call.arguments).unwrap()
                ),
            ),
            (tool(false), r#"{"role":"tool","call_id":"a","name":"f","text":"\u0000é"}"#.to_owned()),
            (tool(true), r#"{"role":"tool","call_id":"a","name":"f","text":"\u0000é","is_error":true}"#.to_owned()),
        ];
        for (message, form) in forms {
            let bytes = message.to_bytes().unwrap();
            assert_eq!(String::from_utf8(bytes.clone()).unwrap(), form);
            let restored = Message::from_bytes(&bytes).unwrap();
            assert_eq!(restored, message);
            assert_eq!(restored.to_bytes().unwrap(), bytes);
        }
        assert!(Message::from_bytes(br#"{"role":"user","text":"u","more":1}"#).is_err());
    }
}
