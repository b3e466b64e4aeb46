//! The contract's two request formats, and the reply in either shape.
//!
//! A request holds only model, messages, tools and a reply limit granted by a budget; no temperature. A turn
//! with calls is sent back without its text, as the contract requires.

use std::borrow::Cow;

use longhaul_domain::ToolCall;
use longhaul_queue::model_calls::StatedLimits;
use longhaul_sdk::ToolSpec;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

use crate::{
    FinishReason, Message, ModelError, ModelReply, ModelRequest, Usage,
    body::Body,
    calls::{CallIds, arguments_or_empty, is_whole_object},
    openai::wire::{OutputLimit, with_reasoning},
    reader::malformed,
    wire_text::WireText,
};

/// Request format of a bound model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFormat {
    /// `input`, with content in parts.
    Responses,
    /// `messages`, with content as text.
    Chat,
}

/// Serialises the request. The bytes depend on the request alone.
pub(super) fn request_body(
    request: &ModelRequest<'_>,
    model: &str,
    (format, chat_limit): (RequestFormat, OutputLimit),
) -> Result<Vec<u8>, ModelError> {
    let messages: Vec<WireMessage<'_>> = request.messages.iter().map(|message| wire_message(message, format)).collect();
    let mut body = Body::default();
    body.set("model", &model)?;
    match format {
        RequestFormat::Responses => body.set("input", &messages)?,
        RequestFormat::Chat => body.set("messages", &messages)?,
    }
    if !request.tools.is_empty() {
        body.set("tools", &request.tools.iter().map(wire_tool).collect::<Vec<_>>())?;
    }
    let limit = match format {
        RequestFormat::Responses => "max_output_tokens",
        RequestFormat::Chat => chat_limit.field(),
    };
    body.set_some(limit, request.max_output_tokens.as_ref())?;
    body.to_bytes()
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    content: WireContent<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireSignature<'a>,
}

#[derive(Serialize)]
struct WireSignature<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Serialize)]
struct WirePart<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: Cow<'a, str>,
}

fn wire_message(message: &Message, format: RequestFormat) -> WireMessage<'_> {
    let calls: Vec<WireCall<'_>> = message.calls().iter().map(wire_call).collect();
    // The contract omits the text of a turn with calls.
    let text = if calls.is_empty() { message.text() } else { Cow::default() };
    let content = match (format, message) {
        (RequestFormat::Chat, _) => WireContent::Text(text),
        (RequestFormat::Responses, Message::Given { parts, .. }) => {
            WireContent::Parts(parts.iter().map(|text| WirePart { kind: "text", text: text.into() }).collect())
        }
        (RequestFormat::Responses, _) if calls.is_empty() => WireContent::Parts(vec![WirePart { kind: "text", text }]),
        (RequestFormat::Responses, _) => WireContent::Parts(Vec::new()),
    };
    let (role, tool_call_id) = match message {
        Message::Given { speaker, .. } => (speaker.as_str(), None),
        Message::Notice { .. } => ("user", None),
        Message::Tool { call_id, .. } => (message.role(), Some(call_id.as_str())),
        Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => (message.role(), None),
    };
    WireMessage { role, tool_call_id, content, tool_calls: calls }
}

fn wire_call(call: &ToolCall) -> WireCall<'_> {
    WireCall { id: &call.id, kind: "function", function: WireFunction { name: &call.name, arguments: &call.arguments } }
}

fn wire_tool(tool: &ToolSpec) -> WireTool<'_> {
    let ToolSpec { name, description, parameters, .. } = tool;
    WireTool { kind: "function", function: WireSignature { name, description, parameters } }
}

#[derive(Deserialize)]
struct WireReply {
    model: Option<String>,
    output: Option<Box<RawValue>>,
    choices: Option<Box<RawValue>>,
    usage: Option<WireUsage>,
    error: Option<IgnoredAny>,
    incomplete_details: Option<WireIncomplete>,
}

#[derive(Deserialize)]
struct WireIncomplete {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct WireChoice {
    message: Option<WireAnswer>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct WireAnswer {
    content: Option<Box<RawValue>>,
    refusal: Option<WireText>,
    tool_calls: Option<Vec<WireAnswerCall>>,
}

#[derive(Deserialize)]
struct WireAnswerCall {
    id: Option<String>,
    function: Option<WireAnswerFunction>,
}

#[derive(Deserialize)]
struct WireAnswerFunction {
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
}

/// An item of `output`: a message, or a call as newer servers list it.
#[derive(Deserialize)]
struct WireItem {
    #[serde(rename = "type")]
    kind: Option<String>,
    content: Option<Box<RawValue>>,
    tool_calls: Option<Vec<WireAnswerCall>>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct WireAnswerPart {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<WireText>,
}

/// Token counts under the names of either format.
#[derive(Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    output_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

impl WireUsage {
    fn written(&self) -> Option<u64> {
        let sent = self.input_tokens.or(self.prompt_tokens);
        with_reasoning(sent, self.output_tokens.or(self.completion_tokens), self.total_tokens, None)
    }
}

/// The content of a reply before its calls get their ids.
#[derive(Default)]
struct Read {
    /// True if the reply ended at the output limit.
    is_cut: bool,
    texts: Vec<String>,
    calls: Vec<(Option<String>, String, Option<Box<RawValue>>)>,
}

/// Parses a reply. `error_inside` converts an error body.
pub(super) fn read_reply(
    body: &[u8],
    (mut ids, is_limited): (CallIds, bool),
    request_id: Option<String>,
    error_inside: impl FnOnce(&[u8]) -> ModelError,
) -> Result<ModelReply, ModelError> {
    let reply: WireReply = serde_json::from_slice(body).map_err(|source| malformed("it is no reply", source))?;
    let is_incomplete = reply.incomplete_details.is_some_and(|why| why.reason.as_deref() == Some("max_output_tokens"));
    let read = match (list(reply.output.as_deref()), list(reply.choices.as_deref())) {
        (Some(output), _) => read_output(output)?,
        (None, Some(choices)) => read_choices(choices)?,
        (None, None) if reply.error.is_some() => return Err(error_inside(body)),
        (None, None) => {
            let what = "it holds neither an output nor choices";
            return Err(ModelError::Malformed { what, source: None });
        }
    };
    // Without a granted limit, the contract accepts truncated replies as complete.
    let is_cut = is_limited && (is_incomplete || read.is_cut);
    let mut calls = Vec::new();
    let mut unfinished_call = None;
    for (id, name, arguments) in read.calls {
        let arguments = arguments.as_deref().map(WireText::of_value).transpose();
        let arguments = arguments.map_err(|source| malformed("a call's arguments", source))?.unwrap_or_default();
        let arguments = arguments.into_json_text();
        unfinished_call = (is_cut && !is_whole_object(&arguments)).then_some(calls.len());
        let arguments = arguments_or_empty(arguments);
        calls.push(ToolCall { id: ids.unique(id.as_deref()), name, arguments });
    }
    let finish = match (is_cut, calls.is_empty()) {
        (true, _) => FinishReason::Length,
        (false, true) => FinishReason::Stop,
        (false, false) => FinishReason::ToolCalls,
    };
    let message = Message::Assistant { text: read.texts.join("\n"), calls, native: None };
    let usage = reply.usage.map_or_else(Usage::default, |usage| Usage {
        input_tokens: usage.input_tokens.or(usage.prompt_tokens),
        output_tokens: usage.written(),
        ..Usage::default()
    });
    Ok(ModelReply {
        message,
        finish,
        unfinished_call,
        usage,
        model: reply.model,
        request_id,
        stated: StatedLimits::default(),
    })
}

/// The JSON text of a value, if it is a list.
fn list(raw: Option<&RawValue>) -> Option<&str> {
    raw.map(RawValue::get).filter(|text| text.starts_with('['))
}

fn read_output(output: &str) -> Result<Read, ModelError> {
    let items: Vec<WireItem> =
        serde_json::from_str(output).map_err(|source| malformed("an item of its output", source))?;
    let mut read = Read::default();
    for item in items {
        read.texts.extend(texts(item.content.as_deref())?);
        read.calls.extend(item.tool_calls.into_iter().flatten().filter_map(named));
        if item.kind.as_deref() == Some("function_call")
            && let Some(name) = item.name.filter(|name| !name.is_empty())
        {
            read.calls.push((item.call_id, name, item.arguments));
        }
    }
    Ok(read)
}

fn read_choices(choices: &str) -> Result<Read, ModelError> {
    let choices: Vec<WireChoice> = serde_json::from_str(choices).map_err(|source| malformed("its choices", source))?;
    let Some(WireChoice { message: Some(answer), finish_reason }) = choices.into_iter().next() else {
        return Err(ModelError::Malformed { what: "its choices hold no message", source: None });
    };
    let is_cut = finish_reason.as_deref() == Some("length");
    let mut read = Read { is_cut, texts: texts(answer.content.as_deref())?, calls: Vec::new() };
    read.calls.extend(answer.tool_calls.into_iter().flatten().filter_map(named));
    if read.texts.is_empty() && read.calls.is_empty() {
        read.texts.extend(answer.refusal.map(WireText::into_prose).filter(|text| !text.is_empty()));
    }
    Ok(read)
}

/// Returns the parts of a call; a call without a tool name is skipped.
fn named(call: WireAnswerCall) -> Option<(Option<String>, String, Option<Box<RawValue>>)> {
    let function = call.function?;
    let name = function.name.filter(|name| !name.is_empty())?;
    Some((call.id, name, function.arguments))
}

/// The trimmed, non-empty texts of a message's content.
fn texts(content: Option<&RawValue>) -> Result<Vec<String>, ModelError> {
    let Some(content) = content else { return Ok(Vec::new()) };
    let texts: Vec<WireText> = if content.get().starts_with('[') {
        let parts: Vec<WireAnswerPart> =
            serde_json::from_str(content.get()).map_err(|source| malformed("its content", source))?;
        let is_text = |part: &WireAnswerPart| matches!(part.kind.as_deref(), Some("text" | "output_text"));
        parts.into_iter().filter(is_text).filter_map(|part| part.text).collect()
    } else {
        vec![WireText::of_value(content).map_err(|source| malformed("its content", source))?]
    };
    let texts = texts.into_iter().map(|text| text.into_prose().trim().to_owned());
    Ok(texts.filter(|text| !text.is_empty()).collect())
}
