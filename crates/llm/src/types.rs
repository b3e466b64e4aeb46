//! Provider-independent types of a model call: usage, requests and replies. The messages of a transcript are in
//! `shared::domain::message`; the wire formats are in `openai/wire.rs` and `anthropic/wire.rs`.

use std::sync::Arc;

pub use longhaul_domain::message::{FileRef, Message, NativeBlocks, NativeFormat, Part, estimate_tokens};
use longhaul_domain::{TenantId, ToolCall};
use longhaul_queue::model_calls::StatedLimits;
use longhaul_sdk::{ToolSpec, spec::ModelSpec};
use serde::{Deserialize, Serialize};

use crate::files::RequestFiles;

/// Longest word for the end of a reply that is kept, in characters.
const MAX_REASON_CHARS: usize = 100;

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

impl Usage {
    /// The counts with those of a later report, which are totals. Servers that count once send zeros later.
    #[must_use]
    pub(crate) fn updated(self, later: Self) -> Self {
        let newest = |later: Option<u64>, before: Option<u64>| match before {
            Some(1..) => later.filter(|count| *count > 0).or(before),
            Some(0) | None => later.or(before),
        };
        Self {
            input_tokens: newest(later.input_tokens, self.input_tokens),
            output_tokens: newest(later.output_tokens, self.output_tokens),
            cached_tokens: newest(later.cached_tokens, self.cached_tokens),
            cache_write_tokens: newest(later.cache_write_tokens, self.cache_write_tokens),
        }
    }
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
    /// The provider paused a long turn; the same conversation, sent again with this reply, goes on.
    Paused,
    /// Any other reason, which does not prove that the reply is complete. Only inside
    /// [`ModelError::Unproven`](super::ModelError::Unproven), and in records of replies that broke.
    Other(String),
}

impl FinishReason {
    /// The reason for a word of any provider or gateway.
    pub(crate) fn of(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "stop" | "end_turn" | "stop_sequence" | "eos" | "eos_token" | "complete" | "completed" | "end" => {
                Self::Stop
            }
            "tool_calls" | "tool_call" | "tool_use" | "function_call" | "function_calls" => Self::ToolCalls,
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "max_completion_tokens"
            | "max_length"
            | "model_length"
            | "token_limit"
            | "model_context_window_exceeded" => Self::Length,
            "refusal" => Self::Refusal,
            "content_filter"
            | "content_filtered"
            | "safety"
            | "image_safety"
            | "recitation"
            | "blocklist"
            | "prohibited_content"
            | "spii"
            | "sensitive"
            | "guardrail_intervened" => Self::ContentFilter,
            "pause_turn" => Self::Paused,
            _ => Self::Other(word.chars().take(MAX_REASON_CHARS).collect()),
        }
    }

    /// Its name in the `GenAI` conventions of `OpenTelemetry`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_call",
            Self::Length => "length",
            Self::Refusal => "refusal",
            Self::ContentFilter => "content_filter",
            Self::Paused => "pause_turn",
            Self::Other(reason) => reason,
        }
    }
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

/// Use of the provider's prompt cache. Absent from a request whose prompt no other begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptCache<'a> {
    /// Name of the conversation: prompts with the same name share prefixes.
    pub key: &'a str,
    pub span: CacheSpan,
}

/// The part of a prompt that other prompts begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSpan {
    /// Tools and instructions.
    Instructions,
    /// Everything: earlier or later prompts are of the same conversation.
    Conversation,
}

/// One model call.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// Tenant whose share of the process's memory for replies the reply takes.
    pub tenant: TenantId,
    pub model: &'a ModelSpec,
    /// The whole transcript. Every result follows the reply whose call it answers.
    pub messages: &'a [Arc<Message>],
    /// The bytes of files in the transcript, as far as the model takes them.
    pub files: &'a RequestFiles,
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
    pub cache: Option<PromptCache<'a>>,
}

/// A model's reply.
#[derive(Debug, Clone, PartialEq)]
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
    /// The endpoint's limits, as the response's headers state them.
    pub stated: StatedLimits,
}

impl ModelReply {
    /// A complete reply without text and calls, of unknown usage.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            message: Message::assistant(""),
            finish: FinishReason::Stop,
            unfinished_call: None,
            usage: Usage::default(),
            model: None,
            request_id: None,
            stated: StatedLimits::default(),
        }
    }
}

/// A part of a reply while it arrives. The returned reply repeats all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEvent {
    /// The first thinking, text or call has arrived. Once, and only if the reply streams.
    Begun,
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
