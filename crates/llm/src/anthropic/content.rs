//! The messages of a request: a transcript as alternating roles and their content blocks.

use std::borrow::Cow;

use longhaul_domain::ToolCall;
use serde::Serialize;
use serde_json::{json, value::RawValue};
use sha2::{Digest, Sha256};

use crate::{
    Message, ModelError, NativeBlocks, NativeFormat, RequestFiles,
    calls::{is_wire_char, wire_name, wire_object},
    files::{Encoded, SentFile, base64},
    types::{FileRef, Part},
};

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
pub(super) fn system_blocks<'a>(texts: &[&'a str]) -> Vec<WireContent<'a>> {
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
pub(super) fn wire_messages<'a>(
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

/// Mark of a block through which the prompt is cached, for five minutes after the last use.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl CacheControl {
    pub(super) const EPHEMERAL: Self = Self { kind: "ephemeral" };
}
