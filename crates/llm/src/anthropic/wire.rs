//! The messages format: request bytes from a transcript, and a whole reply from its bytes.

use std::borrow::Cow;

use longhaul_sdk::{ToolSpec, spec::Effort};
use longhaul_shared::domain::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};

use super::blocks::{Block, finished};
use crate::{
    FinishReason, Message, ModelError, ModelRequest, NativeBlocks, NativeFormat, ToolChoice, Usage,
    body::Body,
    calls::{CallIds, wire_object},
    reply::FinishedReply,
};

/// Fields that an agent's `extra` may not replace.
const RESERVED: [&str; 6] = ["model", "messages", "system", "tools", "tool_choice", "stream"];

/// Fields that make up the prompt; the counting endpoint refuses others.
const COUNTED: [&str; 7] = ["model", "system", "messages", "tools", "tool_choice", "thinking", "output_config"];

/// The format requires a limit, and every current model can write this many tokens.
const DEFAULT_MAX_TOKENS: u32 = 8_192;

/// Serialises the request. The bytes depend on the request alone.
pub(super) fn request_body(request: &ModelRequest<'_>, model: &str) -> Result<Vec<u8>, ModelError> {
    fields(request, model)?.to_bytes()
}

fn fields(request: &ModelRequest<'_>, model: &str) -> Result<Body, ModelError> {
    let spec = request.model;
    if model.is_empty() {
        let what = "neither the agent nor its provider names a model".into();
        return Err(ModelError::InvalidSettings { what });
    }
    let mut body = Body::default();
    body.set("model", &model)?;
    let limit = request.max_output_tokens.or(spec.max_output_tokens);
    body.set("max_tokens", &limit.unwrap_or(DEFAULT_MAX_TOKENS))?;
    let mut messages = request.messages.iter().map(AsRef::as_ref).peekable();
    // Only leading instructions go into `system`: moving later ones there would change the prefix of earlier
    // requests.
    let mut system = Vec::new();
    while let Some(Message::System { text }) = messages.next_if(|message| matches!(message, Message::System { .. })) {
        system.push(text.as_str());
    }
    if !system.is_empty() {
        body.set("system", &system.join("\n\n"))?;
    }
    body.set("messages", &wire_messages(messages)?)?;
    if !request.tools.is_empty() {
        body.set("tools", &wire_tools(request.tools))?;
        match request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::Required => body.set("tool_choice", &json!({ "type": "any" }))?,
            ToolChoice::None => body.set("tool_choice", &json!({ "type": "none" }))?,
            ToolChoice::Named(name) => body.set("tool_choice", &json!({ "type": "tool", "name": name }))?,
        }
    }
    if spec.stream {
        body.set("stream", &true)?;
    }
    body.set_some("temperature", spec.temperature.as_ref())?;
    let effort = spec.effort.map(|effort| match effort {
        Effort::Low => json!({ "effort": "low" }),
        Effort::Medium => json!({ "effort": "medium" }),
        Effort::High => json!({ "effort": "high" }),
    });
    body.set_some("output_config", effort.as_ref())?;
    body.merge(&spec.extra, &RESERVED)?;
    if spec.extra.contains_key("max_tokens") {
        body.set_some("max_tokens", request.max_output_tokens.as_ref())?;
    }
    Ok(body)
}

/// Serialises a request that counts the prompt tokens of `request`.
pub(super) fn count_body(request: &ModelRequest<'_>, model: &str) -> Result<Vec<u8>, ModelError> {
    let mut body = fields(request, model)?;
    body.keep(&COUNTED);
    body.to_bytes()
}

/// Parses the count from the response.
pub(super) fn read_count(body: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct WireCount {
        input_tokens: u64,
    }
    serde_json::from_slice::<WireCount>(body).ok().map(|count| count.input_tokens)
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Vec<WireContent<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireContent<'a> {
    Typed(TypedContent<'a>),
    /// A block that is sent back unchanged.
    Native(Box<RawValue>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TypedContent<'a> {
    Text {
        text: Cow<'a, str>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// Roles must alternate: everything between two replies becomes one user message, in transcript order.
fn wire_messages<'a>(messages: impl Iterator<Item = &'a Message>) -> Result<Vec<WireMessage<'a>>, ModelError> {
    let mut wire: Vec<WireMessage<'a>> = Vec::new();
    for message in messages {
        let (role, content) = match message {
            Message::System { .. } | Message::User { .. } | Message::Given { .. } => {
                ("user", text_content(message.text()).collect())
            }
            Message::Tool { call_id, is_error, .. } => {
                let tool_use_id = wire_id(call_id);
                (
                    "user",
                    vec![WireContent::Typed(TypedContent::ToolResult {
                        tool_use_id,
                        content: message.text(),
                        is_error: *is_error,
                    })],
                )
            }
            Message::Assistant { native: Some(NativeBlocks { format: NativeFormat::Anthropic, blocks }), .. } => {
                ("assistant", blocks.iter().map(|block| native(block.clone())).collect::<Result<_, _>>()?)
            }
            Message::Assistant { text, calls, native: None } => {
                let calls = calls.iter().map(|call| native(tool_use(call)));
                ("assistant", text_content(text.into()).map(Ok).chain(calls).collect::<Result<_, _>>()?)
            }
        };
        match wire.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            _ if content.is_empty() => {}
            _ => wire.push(WireMessage { role, content }),
        }
    }
    Ok(wire)
}

/// A text block; none for blank text, which the format refuses.
fn text_content(text: Cow<'_, str>) -> impl Iterator<Item = WireContent<'_>> {
    (!text.trim().is_empty()).then_some(WireContent::Typed(TypedContent::Text { text })).into_iter()
}

fn native(block: String) -> Result<WireContent<'static>, ModelError> {
    let raw = RawValue::from_string(block)
        .map_err(|error| ModelError::InvalidSettings { what: format!("a recorded block is not JSON: {error}") })?;
    Ok(WireContent::Native(raw))
}

/// The JSON of a `tool_use` block.
pub(super) fn tool_use(call: &ToolCall) -> String {
    let (id, name) = (json!(wire_id(&call.id)), json!(call.name));
    format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{}}}"#, wire_object(&call.arguments))
}

/// An id in the characters that the format allows. An id of another provider with other characters gets the
/// same substitute in its call and in its result.
fn wire_id(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.is_empty() && id.chars().all(fits) {
        return Cow::Borrowed(id);
    }
    let mut digest = hex::encode(Sha256::digest(id.as_bytes()));
    digest.truncate(24);
    Cow::Owned(format!("call_{digest}"))
}

fn wire_tools(tools: &[ToolSpec]) -> Vec<Value> {
    let mut tools: Vec<&ToolSpec> = tools.iter().collect();
    // Sort by name, so that another order of the same tools does not change the bytes and lose the prompt cache.
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    let tool = |tool: &ToolSpec| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters });
    tools.into_iter().map(tool).collect()
}

#[derive(Deserialize)]
struct WireReply {
    #[serde(rename = "type")]
    kind: Option<String>,
    model: Option<String>,
    #[serde(default)]
    content: Vec<Box<RawValue>>,
    stop_reason: Option<String>,
    #[serde(default)]
    usage: WireUsage,
}

/// Parses a whole reply. `error_inside` converts an error body.
pub(super) fn read_reply(
    body: &[u8],
    ids: CallIds,
    error_inside: impl FnOnce(&[u8]) -> ModelError,
) -> Result<FinishedReply, ModelError> {
    let reply: WireReply = serde_json::from_slice(body).map_err(|source| malformed("it is not a message", source))?;
    if reply.kind.as_deref() == Some("error") {
        return Err(error_inside(body));
    }
    let finish = stop_reason(reply.stop_reason.as_deref().unwrap_or("end_turn"));
    let mut ids = ids;
    let blocks = reply.content.into_iter().map(|raw| Block::whole(&raw, &mut ids)).collect::<Result<Vec<_>, _>>()?;
    Ok(finished(blocks, finish, reply.usage.into_usage(), reply.model))
}

pub(super) fn malformed(what: &'static str, source: serde_json::Error) -> ModelError {
    ModelError::Malformed { what, source: Some(source) }
}

pub(super) fn stop_reason(text: &str) -> FinishReason {
    match text {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Refusal,
        other => FinishReason::Other(other.to_owned()),
    }
}

/// Token counts. The format reports cached input separately; our `input_tokens` include it.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub(super) struct WireUsage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl WireUsage {
    /// Takes the counts of a later event, which are totals.
    pub(super) fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
    }

    pub(super) fn into_usage(self) -> Usage {
        let cached =
            self.cache_creation_input_tokens.unwrap_or(0).saturating_add(self.cache_read_input_tokens.unwrap_or(0));
        Usage {
            input_tokens: self.input_tokens.map(|fresh| fresh.saturating_add(cached)),
            output_tokens: self.output_tokens,
            cached_tokens: self.cache_read_input_tokens,
            cache_write_tokens: self.cache_creation_input_tokens,
        }
    }
}
