//! The messages format: request bytes from a transcript, and the token counts of a reply.

use std::borrow::Cow;

use longhaul_sdk::{ToolSpec, spec::Effort};
use longhaul_shared::domain::ToolCall;
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};

use super::breakpoints::{self, CacheControl};
use crate::{
    CacheSpan, Message, ModelError, ModelRequest, NativeBlocks, NativeFormat, RequestFiles, ToolChoice, Usage,
    body::Body,
    calls::{is_wire_char, wire_name, wire_object},
    files::{Encoded, SentFile, base64},
    lenient::Members,
    types::{FileRef, Part},
};

/// Fields that an agent's `extra` may not replace, beside those of every protocol.
const RESERVED: [&str; 1] = ["system"];

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
    // An agent with its own setting places its own breakpoints; the format allows four in all.
    let cache = request.cache.filter(|_| !spec.extra.contains_key("cache_control"));
    let mut messages = request.messages.iter().map(AsRef::as_ref).peekable();
    // Only leading instructions go into `system`: moving later ones there would change the prefix of earlier
    // requests.
    let mut system = Vec::new();
    while let Some(Message::System { text }) = messages.next_if(|message| matches!(message, Message::System { .. })) {
        system.push(text.as_str());
    }
    let blocks = system_blocks(&system);
    let is_system_marked = cache.is_some() && !blocks.is_empty();
    if is_system_marked {
        body.set("system", &blocks)?;
    } else if !system.is_empty() {
        body.set("system", &system.join("\n\n"))?;
    }
    let mut wire = wire_messages(messages, request.files)?;
    if cache.is_some_and(|cache| cache.span == CacheSpan::Conversation) {
        breakpoints::mark(&mut wire);
    }
    body.set("messages", &wire.messages)?;
    if !request.tools.is_empty() {
        let mut tools = wire_tools(request.tools);
        if let (Some(_), false, Some(last)) = (cache, is_system_marked, tools.last_mut()) {
            last["cache_control"] = json!(CacheControl::EPHEMERAL);
        }
        body.set("tools", &tools)?;
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
    Members::read(body).ok()?.count("input_tokens")
}

/// The messages of a request.
pub(super) struct WireConversation<'a> {
    pub(super) messages: Vec<WireMessage<'a>>,
    /// Number of blocks that the first message after the instructions has in the first wire message; 0 if it is a
    /// reply.
    pub(super) head: usize,
}

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    pub(super) role: &'static str,
    pub(super) content: Vec<WireContent<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum WireContent<'a> {
    Typed(MarkedContent<'a>),
    /// A block that is sent back unchanged.
    Native(Box<RawValue>),
}

impl WireContent<'_> {
    /// Marks a block of a caller or a tool for the prompt cache.
    pub(super) fn mark(&mut self) {
        match self {
            Self::Typed(marked) => marked.cache_control = Some(CacheControl::EPHEMERAL),
            Self::Native(_) => {}
        }
    }
}

#[derive(Serialize)]
pub(super) struct MarkedContent<'a> {
    #[serde(flatten)]
    content: TypedContent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> From<TypedContent<'a>> for WireContent<'a> {
    fn from(content: TypedContent<'a>) -> Self {
        Self::Typed(MarkedContent { content, cache_control: None })
    }
}

/// The instructions as blocks, of which the first is marked for the prompt cache.
fn system_blocks<'a>(texts: &[&'a str]) -> Vec<WireContent<'a>> {
    let mut blocks: Vec<_> = texts.iter().flat_map(|text| text_content((*text).into())).collect();
    if let Some(first) = blocks.first_mut() {
        first.mark();
    }
    blocks
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum TypedContent<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: WireSource<'a>,
    },
    Document {
        source: WireSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "ResultContent::is_empty")]
        content: ResultContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
pub(super) struct WireSource<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    media_type: &'a str,
    #[serde(serialize_with = "base64")]
    data: Encoded<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ResultContent<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<TypedContent<'a>>),
}

impl ResultContent<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Blocks(blocks) => blocks.is_empty(),
        }
    }
}

/// Roles must alternate: everything between two replies becomes one user message, in transcript order.
fn wire_messages<'a>(
    messages: impl Iterator<Item = &'a Message>,
    files: &RequestFiles,
) -> Result<WireConversation<'a>, ModelError> {
    let mut wire: Vec<WireMessage<'a>> = Vec::new();
    let mut head = None;
    for message in messages {
        let (role, content) = match message {
            Message::System { .. } | Message::Notice { .. } | Message::Given { .. } => {
                ("user", text_content(message.text()).collect())
            }
            Message::User { parts } => ("user", user_content(message, parts, files)),
            Message::Tool { call_id, is_error, text, files: own, .. } => {
                let (tool_use_id, content) = (wire_id(call_id), result_content(text, own, files));
                let result = TypedContent::ToolResult { tool_use_id, content, is_error: *is_error };
                ("user", vec![result.into()])
            }
            Message::Assistant {
                native: Some(NativeBlocks { format: NativeFormat::Anthropic, blocks, .. }), ..
            } => ("assistant", blocks.iter().map(|block| native(block.clone())).collect::<Result<_, _>>()?),
            Message::Assistant { text, calls, native: _ } => {
                let calls = calls.iter().map(|call| native(tool_use(call)));
                ("assistant", text_content(text.into()).map(Ok).chain(calls).collect::<Result<_, _>>()?)
            }
        };
        head.get_or_insert(if role == "user" { content.len() } else { 0 });
        match wire.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            _ if content.is_empty() => {}
            _ => wire.push(WireMessage { role, content }),
        }
    }
    Ok(WireConversation { messages: wire, head: head.unwrap_or(0) })
}

/// One text if no part of it is sent as a file, as before a model took files: the bytes of a prompt do not change.
fn user_content<'a>(message: &'a Message, parts: &'a [Part], files: &RequestFiles) -> Vec<WireContent<'a>> {
    if message.files().next().is_none() {
        return text_content(message.text()).collect();
    }
    let block = |part: &'a Part| match part {
        Part::Text(text) => text_block(text.into()),
        Part::Image(file) | Part::File(file) => Some(file_block(file, files)),
    };
    parts.iter().filter_map(block).map(WireContent::from).collect()
}

fn result_content<'a>(text: &'a str, own: &'a [FileRef], files: &RequestFiles) -> ResultContent<'a> {
    if own.is_empty() {
        return ResultContent::Text(text.into());
    }
    let blocks = text_block(text.into()).into_iter().chain(own.iter().map(|file| file_block(file, files)));
    ResultContent::Blocks(blocks.collect())
}

fn file_block<'a>(file: &'a FileRef, files: &RequestFiles) -> TypedContent<'a> {
    let source = |data| WireSource { kind: "base64", media_type: &file.media_type, data };
    match files.sent(file) {
        SentFile::Text(text) => TypedContent::Text { text },
        SentFile::Image(image) => TypedContent::Image { source: source(image) },
        SentFile::Pdf(pdf) => TypedContent::Document { source: source(pdf), title: file.name.as_deref() },
    }
}

fn text_block(text: Cow<'_, str>) -> Option<TypedContent<'_>> {
    (!text.trim().is_empty()).then_some(TypedContent::Text { text })
}

/// A text block; none for blank text, which the format refuses.
fn text_content(text: Cow<'_, str>) -> impl Iterator<Item = WireContent<'_>> {
    text_block(text).map(WireContent::from).into_iter()
}

fn native(block: String) -> Result<WireContent<'static>, ModelError> {
    let raw = RawValue::from_string(block)
        .map_err(|error| ModelError::InvalidSettings { what: format!("a recorded block is not JSON: {error}") })?;
    Ok(WireContent::Native(raw))
}

/// The JSON of a `tool_use` block.
pub(super) fn tool_use(call: &ToolCall) -> String {
    let (id, name) = (json!(wire_id(&call.id)), json!(wire_name(&call.name)));
    format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{}}}"#, wire_object(&call.arguments))
}

/// An id in the characters that the format allows. An id of another provider with other characters gets the
/// same substitute in its call and in its result.
fn wire_id(id: &str) -> Cow<'_, str> {
    if !id.is_empty() && id.chars().all(is_wire_char) {
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

/// Token counts. The format reports cached input separately; our `input_tokens` include it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct WireUsage(Usage);

impl WireUsage {
    pub(super) fn read(mut usage: Members) -> Self {
        Self(Usage {
            input_tokens: usage.count("input_tokens"),
            output_tokens: usage.count("output_tokens"),
            cached_tokens: usage.count("cache_read_input_tokens"),
            cache_write_tokens: usage.count("cache_creation_input_tokens"),
        })
    }

    /// Takes the counts of a later event, which are totals.
    pub(super) fn update(&mut self, later: Self) {
        self.0 = self.0.updated(later.0);
    }

    pub(super) fn into_usage(self) -> Usage {
        let cached =
            [self.0.cached_tokens, self.0.cache_write_tokens].into_iter().flatten().fold(0, u64::saturating_add);
        Usage { input_tokens: self.0.input_tokens.map(|fresh| fresh.saturating_add(cached)), ..self.0 }
    }
}
