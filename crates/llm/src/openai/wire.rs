//! The chat-completions format: request bytes from a transcript, and a whole reply from its bytes.

use std::borrow::Cow;

use longhaul_sdk::{ToolSpec, spec::Effort};
use longhaul_shared::domain::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::{
    CacheSpan, FinishReason, Message, ModelError, ModelRequest, RequestFiles, ToolChoice, Usage,
    body::Body,
    calls::{CallIds, wire_object},
    files::{DataUrl, SentFile},
    reply::FinishedReply,
    reply_limit::LIMIT_FIELDS,
    types::{FileRef, Part},
    wire_text::WireText,
};

/// Fields that an agent's `extra` may not replace.
const RESERVED: [&str; 7] = ["model", "messages", "tools", "tool_choice", "stream", "stream_options", "n"];

/// A server's field for the reply limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputLimit {
    /// `max_completion_tokens`: OpenAI's reasoning models refuse the older name.
    MaxCompletionTokens,
    /// `max_tokens`: the only name that most compatible servers know.
    MaxTokens,
}

impl OutputLimit {
    pub(crate) fn of_host(host: &str) -> Self {
        let newer =
            host == "api.openai.com" || host.ends_with(".api.openai.com") || host.ends_with(".openai.azure.com");
        if newer { Self::MaxCompletionTokens } else { Self::MaxTokens }
    }

    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxTokens => "max_tokens",
        }
    }
}

/// Serialises the request. The bytes depend on the request alone.
pub(super) fn request_body(request: &ModelRequest<'_>, model: &str, limit: OutputLimit) -> Result<Vec<u8>, ModelError> {
    let spec = request.model;
    let mut body = Body::default();
    body.set("model", &model)?;
    body.set("messages", &wire_messages(request))?;
    if !request.tools.is_empty() {
        body.set("tools", &wire_tools(request.tools))?;
        match request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::Required => body.set("tool_choice", &"required")?,
            ToolChoice::None => body.set("tool_choice", &"none")?,
            ToolChoice::Named(name) => {
                body.set("tool_choice", &json!({ "type": "function", "function": { "name": name } }))?;
            }
        }
    }
    if spec.stream {
        body.set("stream", &true)?;
        body.set("stream_options", &json!({ "include_usage": true }))?;
    }
    body.set_some("temperature", spec.temperature.as_ref())?;
    // An agent that sets either limit in `extra` chooses the field.
    let named = LIMIT_FIELDS.into_iter().filter(|field| spec.extra.contains_key(*field)).collect::<Vec<_>>();
    if named.is_empty() {
        body.set_some(limit.field(), request.max_output_tokens.or(spec.max_output_tokens).as_ref())?;
    }
    let effort = spec.effort.map(|effort| match effort {
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    });
    body.set_some("reasoning_effort", effort.as_ref())?;
    if let Some(schema) = request.output_schema {
        let format = json!({ "type": "json_schema", "json_schema": { "name": "output", "schema": schema } });
        body.set("response_format", &format)?;
    }
    // A key spreads requests over machines: only prompts of one conversation gain from one.
    let conversation = request.cache.filter(|cache| cache.span == CacheSpan::Conversation);
    body.set_some("prompt_cache_key", conversation.map(|cache| cache.key).as_ref())?;
    body.merge(&spec.extra, &RESERVED)?;
    for field in named {
        body.set_some(field, request.max_output_tokens.as_ref())?;
    }
    body.to_bytes()
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: UserContent<'a>,
    },
    Assistant {
        /// Null if there are only calls: some servers refuse empty text.
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

/// A text where there are no other parts: compatible servers may know no parts.
#[derive(Serialize)]
#[serde(untagged)]
enum UserContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    File { file: WireFile<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

#[derive(Serialize)]
struct WireFile<'a> {
    filename: &'a str,
    file_data: DataUrl<'a>,
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
    arguments: Cow<'a, str>,
}

/// The transcript. Results of calls are text only in this format: their files follow the last result of the turn in a
/// user's message.
fn wire_messages<'a>(request: &ModelRequest<'a>) -> Vec<WireMessage<'a>> {
    let mut wire = Vec::with_capacity(request.messages.len());
    let mut of_results = Vec::new();
    for message in request.messages {
        if !matches!(**message, Message::Tool { .. }) {
            push_parts(&mut wire, &mut of_results);
        }
        wire.push(wire_message(message, request.files));
        if let Message::Tool { call_id, name, files, .. } = &**message {
            of_results.extend(files_of_result((call_id, name), files, request.files));
        }
    }
    push_parts(&mut wire, &mut of_results);
    wire
}

fn push_parts<'a>(wire: &mut Vec<WireMessage<'a>>, parts: &mut Vec<WirePart<'a>>) {
    if !parts.is_empty() {
        wire.push(WireMessage::User { content: UserContent::Parts(std::mem::take(parts)) });
    }
}

fn wire_message<'a>(message: &'a Message, files: &RequestFiles) -> WireMessage<'a> {
    match message {
        Message::System { text } => WireMessage::System { content: text },
        Message::User { parts } => WireMessage::User { content: user_content(parts, files) },
        Message::Given { .. } => WireMessage::User { content: UserContent::Text(message.text()) },
        Message::Assistant { text, calls, native: _ } => WireMessage::Assistant {
            content: (!text.is_empty() || calls.is_empty()).then_some(text),
            tool_calls: calls.iter().map(wire_call).collect(),
        },
        // The format has no flag for a failed call; the text describes the failure.
        Message::Tool { call_id, text, files: own, .. } => {
            let of_file = |file| match files.sent(file) {
                SentFile::Text(text) => text,
                SentFile::Image(sent) | SentFile::Pdf(sent) => Cow::Owned(sent.file.description()),
            };
            let content = if own.is_empty() {
                Cow::Borrowed(text.as_str())
            } else {
                std::iter::once(Cow::Borrowed(text.as_str()))
                    .chain(own.iter().map(of_file))
                    .collect::<Vec<_>>()
                    .join("\n")
                    .into()
            };
            WireMessage::Tool { tool_call_id: call_id, content }
        }
    }
}

fn user_content<'a>(parts: &'a [Part], files: &RequestFiles) -> UserContent<'a> {
    let wire: Vec<WirePart<'a>> = parts.iter().map(|part| wire_part(part, files)).collect();
    let texts: Option<Vec<&str>> = wire.iter().map(WirePart::text).collect();
    match texts {
        None => UserContent::Parts(wire),
        Some(texts) if texts.len() == 1 => match wire.into_iter().next() {
            Some(WirePart::Text { text }) => UserContent::Text(text),
            Some(_) | None => UserContent::Text(Cow::default()),
        },
        Some(texts) => UserContent::Text(Cow::Owned(texts.join("\n"))),
    }
}

fn wire_part<'a>(part: &'a Part, files: &RequestFiles) -> WirePart<'a> {
    match part {
        Part::Text(text) => WirePart::Text { text: text.into() },
        Part::Image(file) | Part::File(file) => sent_part(files.sent(file)),
    }
}

fn sent_part(sent: SentFile<'_>) -> WirePart<'_> {
    match sent {
        SentFile::Text(text) => WirePart::Text { text },
        SentFile::Image(image) => WirePart::ImageUrl { image_url: ImageUrl { url: DataUrl(image) } },
        SentFile::Pdf(pdf) => {
            let filename = pdf.file.name_or("document.pdf");
            WirePart::File { file: WireFile { filename, file_data: DataUrl(pdf) } }
        }
    }
}

/// The files of a call's result that are not text, each after a text that says where it is from.
fn files_of_result<'a>((call_id, name): (&str, &str), files: &'a [FileRef], bytes: &RequestFiles) -> Vec<WirePart<'a>> {
    let mut parts = Vec::new();
    for file in files {
        let part = sent_part(bytes.sent(file));
        if part.text().is_none() {
            let text = format!("From the result of call {call_id} of {name}: {}", file.description());
            parts.extend([WirePart::Text { text: text.into() }, part]);
        }
    }
    parts
}

impl WirePart<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::ImageUrl { .. } | Self::File { .. } => None,
        }
    }
}

fn wire_call(call: &ToolCall) -> WireCall<'_> {
    let function = WireFunction { name: &call.name, arguments: wire_object(&call.arguments) };
    WireCall { id: &call.id, kind: "function", function }
}

fn wire_tools(tools: &[ToolSpec]) -> Vec<Value> {
    let mut tools: Vec<&ToolSpec> = tools.iter().collect();
    // Sort by name, so that another order of the same tools does not change the bytes and lose the prompt cache.
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    let tool = |tool: &ToolSpec| {
        let mut function = json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
        if tool.is_strict {
            function["strict"] = json!(true);
        }
        json!({ "type": "function", "function": function })
    };
    tools.into_iter().map(tool).collect()
}

/// A whole reply, or an error sent with status 200.
#[derive(Deserialize)]
struct WireReply {
    model: Option<String>,
    #[serde(default)]
    choices: Option<Vec<WireChoice>>,
    usage: Option<WireUsage>,
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
pub(crate) struct WireChoice {
    pub(crate) message: Option<WireAnswer>,
    pub(crate) finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct WireAnswer {
    pub(crate) content: Option<Box<RawValue>>,
    pub(crate) refusal: Option<WireText>,
    pub(crate) tool_calls: Option<Vec<WireAnswerCall>>,
}

#[derive(Deserialize)]
pub(crate) struct WireAnswerCall {
    pub(crate) id: Option<String>,
    pub(crate) function: Option<WireAnswerFunction>,
}

#[derive(Deserialize)]
pub(crate) struct WireAnswerFunction {
    pub(crate) name: Option<String>,
    pub(crate) arguments: Option<Box<RawValue>>,
}

/// Parses a whole reply. `error_inside` converts an error body.
pub(super) fn read_reply(
    body: &[u8],
    mut ids: CallIds,
    error_inside: impl FnOnce(&[u8]) -> ModelError,
) -> Result<FinishedReply, ModelError> {
    let reply: WireReply =
        serde_json::from_slice(body).map_err(|source| malformed("it is not a completion", source))?;
    if reply.error.is_some() {
        return Err(error_inside(body));
    }
    let Some(choice) = reply.choices.into_iter().flatten().next() else {
        return Err(ModelError::Empty);
    };
    let answer = choice.message.ok_or(ModelError::Malformed { what: "its choice has no message", source: None })?;
    let mut text = content(answer.content.as_deref())?.into_prose();
    let mut finish = finish_reason(choice.finish_reason.as_deref().unwrap_or("stop"));
    if let Some(refusal) = answer.refusal.filter(|refusal| !refusal.is_empty()) {
        text = refusal.into_prose();
        finish = FinishReason::Refusal;
    }
    let mut calls = Vec::new();
    for call in answer.tool_calls.into_iter().flatten() {
        let function = call.function.ok_or(ModelError::Malformed { what: "a call has no function", source: None })?;
        let name = function.name.filter(|name| !name.is_empty()).ok_or(NAMELESS)?;
        let arguments = function.arguments.as_deref().map(WireText::of_value).transpose();
        let arguments = arguments.map_err(|source| malformed("a call's arguments", source))?.unwrap_or_default();
        calls.push(ToolCall { id: ids.unique(call.id.as_deref()), name, arguments: arguments.into_json_text() });
    }
    let usage = reply.usage.map(WireUsage::into_usage).unwrap_or_default();
    Ok(FinishedReply { text, calls, native: None, finish, usage, model: reply.model })
}

pub(super) const NAMELESS: ModelError = ModelError::Malformed { what: "a call names no tool", source: None };

pub(crate) fn malformed(what: &'static str, source: serde_json::Error) -> ModelError {
    ModelError::Malformed { what, source: Some(source) }
}

pub(super) fn content(raw: Option<&RawValue>) -> Result<WireText, ModelError> {
    let text = raw.map(WireText::of_content).transpose().map_err(|source| malformed("its content", source))?;
    Ok(text.unwrap_or_default())
}

pub(super) fn finish_reason(text: &str) -> FinishReason {
    match text {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        other => FinishReason::Other(other.to_owned()),
    }
}

/// Token counts; absent or null if the server does not count.
#[derive(Debug, Deserialize)]
pub(super) struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<WirePromptDetails>,
    completion_tokens_details: Option<WireCompletionDetails>,
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct WirePromptDetails {
    cached_tokens: Option<u64>,
    #[serde(alias = "cache_creation_tokens")]
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct WireCompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    pub(super) fn into_usage(self) -> Usage {
        let reasoning = self.completion_tokens_details.and_then(|details| details.reasoning_tokens);
        let details = self.prompt_tokens_details;
        Usage {
            input_tokens: self.prompt_tokens,
            output_tokens: with_reasoning(self.prompt_tokens, self.completion_tokens, self.total_tokens, reasoning),
            cached_tokens: details.as_ref().and_then(|details| details.cached_tokens),
            cache_write_tokens: details
                .and_then(|details| details.cache_write_tokens)
                .or(self.cache_creation_input_tokens),
        }
    }
}

/// All output tokens. Some servers count reasoning outside the completion: only in the total, or only in the details.
pub(crate) fn with_reasoning(
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    reasoning: Option<u64>,
) -> Option<u64> {
    let completion = completion?;
    let beside = match (prompt, total, reasoning) {
        (Some(prompt), Some(total), _) => total.saturating_sub(prompt),
        (_, _, Some(reasoning)) if reasoning > completion => completion.saturating_add(reasoning),
        _ => completion,
    };
    Some(completion.max(beside))
}
