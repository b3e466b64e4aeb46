//! The words of a model call that no provider owns: messages, calls, usage, requests and replies.
//!
//! A [`Message`] is stored by the journal as the exact bytes of [`Message::to_bytes`], and what goes on the wire is a function
//! of those bytes alone, so that a resumed execution sends the request it would have sent. Arguments of calls are therefore
//! text, never parsed values: `1e2`, `-0.0`, doubled keys and lone-surrogate escapes are what the model wrote.
//! Nothing here knows a provider's wire format; that is `openai/wire.rs` and `anthropic/wire.rs`.

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
    /// What the caller, a validator or the loop says.
    User {
        /// The text.
        text: String,
    },
    /// A message of the caller's own conversation that no other role says: several parts, or the words of a tool.
    Given {
        /// Its role, as the caller names it.
        speaker: String,
        /// The parts, one a line.
        text: String,
        /// The parts.
        parts: Vec<String>,
    },
    /// One reply of the model.
    Assistant {
        /// Its prose; empty when it only called tools.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// Its calls, in the order it wrote them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// The reply as its provider needs it back, where text and calls cannot rebuild it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<NativeBlocks>,
    },
    /// The result of one call.
    Tool {
        /// The call it answers.
        call_id: String,
        /// The tool's name.
        name: String,
        /// What the model is told, already cut to its size cap.
        text: String,
        /// The call failed and the text says how.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Message {
    /// A reply with nothing but text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), calls: Vec::new(), native: None }
    }

    /// A user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into() }
    }

    /// A system message.
    pub fn system(text: impl Into<String>) -> Self {
        Self::System { text: text.into() }
    }

    /// The bytes that are stored, hashed and replayed: JSON with a fixed order of fields.
    ///
    /// # Errors
    /// Never for a message built from strings; the error is passed on rather than assumed away.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// The bytes are not a message of this build.
    pub fn from_bytes(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// The text of the message, whatever its role.
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

    /// The calls of a reply; none for any other role.
    #[must_use]
    pub fn calls(&self) -> &[ToolCall] {
        match self {
            Self::Assistant { calls, .. } => calls,
            Self::System { .. } | Self::User { .. } | Self::Given { .. } | Self::Tool { .. } => &[],
        }
    }

    /// The name of the role, as stored.
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

    /// Tokens at four bytes each: an estimate for limits where no provider has counted.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        let calls: usize = self.calls().iter().map(|call| call.name.len() + call.arguments.len()).sum();
        estimate_tokens(self.text().len() + calls)
    }
}

/// Tokens of `bytes` bytes of text, at four bytes each, rounded up.
#[must_use]
pub fn estimate_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

/// A tool call as the model proposed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Unique within its reply; synthesised where the provider gave none or gave it twice.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The exact text the model wrote; perhaps not JSON. `{}` when it wrote nothing.
    pub arguments: String,
}

/// A reply in its provider's own blocks, kept when they carry more than text and calls (signed thinking, an unusual order).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeBlocks {
    /// The wire format they belong to; another provider ignores them and uses text and calls.
    pub format: NativeFormat,
    /// The JSON text of each block, in order, sent back as it is.
    pub blocks: Vec<String>,
}

/// A wire format whose replies may need their own blocks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NativeFormat {
    /// Content blocks of Anthropic's messages API.
    Anthropic,
}

/// Tokens of one model call as its provider counted them. Absent means not reported, which is never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Everything sent, the cached part included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Everything written, thinking included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// The part of the input that the provider had cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// The part of the input that the provider wrote to its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
}

/// Why the model stopped writing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// It waits for the results of its calls.
    ToolCalls,
    /// The output limit or the window was reached; the last call may be missing.
    Length,
    /// It declined. Only inside [`ModelError::Refused`](super::ModelError::Refused).
    Refusal,
    /// A filter of the provider stopped it. Only inside [`ModelError::Refused`](super::ModelError::Refused).
    ContentFilter,
    /// A reason this build does not know; treated as done.
    Other(String),
}

/// Which tools the model may or must call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolChoice<'a> {
    /// Its own decision.
    #[default]
    Auto,
    /// Some tool.
    Required,
    /// This tool.
    Named(&'a str),
    /// None of them: only text.
    None,
}

/// One model call.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The model and its parameters.
    pub model: &'a ModelSpec,
    /// The whole transcript. Every result follows the reply whose call it answers.
    pub messages: &'a [Arc<Message>],
    /// What the model may call; sent in the order of their names.
    pub tools: &'a [ToolSpec],
    /// Which of them it must call.
    pub tool_choice: ToolChoice<'a>,
    /// Made from the execution and the step; the same for every repetition of this call.
    pub idempotency_key: &'a str,
    /// The W3C trace context to continue.
    pub traceparent: Option<&'a str>,
    /// The reply limit that a budget granted, in tokens: sent instead of whatever the agent's settings say, `extra` included.
    pub max_output_tokens: Option<u32>,
    /// The model's window in tokens, where it is known. Only the scripted model enforces it; real ones know their own.
    pub context_tokens: Option<u32>,
    /// The schema that the provider is to hold the text of the answer to, where it can.
    pub output_schema: Option<&'a serde_json::Value>,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReply {
    /// Always [`Message::Assistant`].
    pub message: Message,
    /// Why it stopped.
    pub finish: FinishReason,
    /// The call, by its index, whose arguments the output limit cut off: it must not run. Only with
    /// [`FinishReason::Length`], and always the last.
    pub unfinished_call: Option<usize>,
    /// What it cost, as far as it was said.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: Option<String>,
    /// The provider's id of the request, for support.
    pub request_id: Option<String>,
}

/// What is known of a reply while it arrives. The reply that is returned at the end repeats all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEvent {
    /// More prose.
    TextDelta(String),
    /// A call has begun; its arguments are not known.
    CallStarted {
        /// Its place among the calls of the reply.
        index: usize,
        /// Its id.
        id: String,
        /// The tool.
        name: String,
    },
    /// A call's arguments are complete. The stream may still fail.
    CallCompleted {
        /// Its place among the calls of the reply.
        index: usize,
        /// The call.
        call: ToolCall,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_one_form_and_survives_it() {
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
