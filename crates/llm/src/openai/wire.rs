//! The chat-completions format: the fields of a request, and those of a reply.

use longhaul_sdk::{ToolSpec, spec::Effort};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use super::messages::wire_messages;
use crate::{
    CacheSpan, ModelError, ModelRequest, ToolChoice, Usage, body::Body, foreign, lenient::Members, reader::malformed,
    reply_limit::LIMIT_FIELDS, wire_text::WireText,
};

/// Fields that an agent's `extra` may not replace, beside those of every protocol.
pub(super) const RESERVED: [&str; 1] = ["n"];

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

/// What requests to one server have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Server<'a> {
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
    pub(super) limit: OutputLimit,
}

/// Serialises the request. The bytes depend on the request alone.
pub(super) fn request_body(request: &ModelRequest<'_>, server: Server<'_>) -> Result<Vec<u8>, ModelError> {
    let spec = request.model;
    let mut body = Body::default();
    body.set("model", &server.model)?;
    body.set("messages", &wire_messages(request, server.provider))?;
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
        body.set_some(server.limit.field(), request.max_output_tokens.or(spec.max_output_tokens).as_ref())?;
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
    let is_openai = server.limit == OutputLimit::MaxCompletionTokens;
    body.merge(&foreign::for_chat(&spec.extra, !request.tools.is_empty(), is_openai), &RESERVED)?;
    for field in named {
        body.set_some(field, request.max_output_tokens.as_ref())?;
    }
    body.to_bytes()
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

/// The text of a message's content: a string, the text parts of a list, or nothing for null.
pub(super) fn content(raw: Option<&RawValue>) -> Result<WireText, ModelError> {
    let Some(raw) = raw else { return Ok(WireText::default()) };
    let read = || {
        if !raw.get().starts_with('[') {
            return WireText::of_value(raw);
        }
        let mut text = WireText::default();
        for part in serde_json::from_str::<Vec<Box<RawValue>>>(raw.get())? {
            text.append(&Members::of(&part).text("text")?);
        }
        Ok(text)
    };
    read().map_err(|source| malformed("its content", source))
}

/// Token counts; absent if the server does not count.
pub(super) fn usage(mut usage: Members) -> Usage {
    let mut details = usage.object("prompt_tokens_details");
    let reasoning = usage.object("completion_tokens_details").count("reasoning_tokens");
    let (prompt, completion) = (usage.count("prompt_tokens"), usage.count("completion_tokens"));
    let written = details.count("cache_write_tokens").or_else(|| details.count("cache_creation_tokens"));
    Usage {
        input_tokens: prompt,
        output_tokens: with_reasoning(prompt, completion, usage.count("total_tokens"), reasoning),
        cached_tokens: details.count("cached_tokens"),
        cache_write_tokens: written.or_else(|| usage.count("cache_creation_input_tokens")),
    }
}

/// The context window of a model in its server's list, under the names of vLLM, `OpenRouter`, Groq and Mistral.
pub(super) fn listed_window(list: &[u8], model: &str) -> Option<u64> {
    const NAMES: [&str; 4] = ["max_model_len", "context_length", "context_window", "max_context_length"];
    let listed = Members::read(list).ok()?.list("data").into_iter().map(|entry| Members::of(&entry));
    let mut listed: Vec<Members> = listed.collect();
    let only = listed.len() == 1;
    let mut entry = listed.iter_mut().find(|entry| only || entry.is("id", model))?.clone();
    NAMES.iter().find_map(|name| entry.count(name)).filter(|tokens| *tokens > 0)
}

/// The parts of a message's content that are no text, as a list; `None` if there are none. Mistral's models think in
/// them.
pub(super) fn other_parts(raw: &RawValue) -> Option<Box<RawValue>> {
    let parts: Vec<Box<RawValue>> = serde_json::from_str(raw.get()).ok()?;
    let other: Vec<_> = parts.into_iter().filter(|part| !Members::of(part).has("text")).collect();
    to_raw_value(&other).ok().filter(|_| !other.is_empty())
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
