//! The messages format: request bytes from a transcript, whose messages are in `content.rs`, and the token counts of a
//! reply.

use longhaul_sdk::{ToolSpec, spec::Effort};
use serde_json::{Map, Value, json};

use super::{
    breakpoints,
    content::{CacheControl, system_blocks, wire_messages},
};
use crate::{CacheSpan, Message, ModelError, ModelRequest, ToolChoice, Usage, body::Body, foreign, lenient::Members};

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
        body.set_some("tool_choice", tool_choice(request).as_ref())?;
    }
    if spec.stream {
        body.set("stream", &true)?;
    }
    body.set_some("temperature", spec.temperature.as_ref())?;
    body.set_some("output_config", output_config(request).as_ref())?;
    body.merge(&foreign::for_messages(&spec.extra), &RESERVED)?;
    if spec.extra.contains_key("max_tokens") {
        body.set_some("max_tokens", request.max_output_tokens.as_ref())?;
    }
    Ok(body)
}

/// The choice among tools, and if a reply may hold one call only; `None` if the request sets neither.
fn tool_choice(request: &ModelRequest<'_>) -> Option<Value> {
    let is_serial = foreign::is_serial(&request.model.extra);
    let mut choice = match request.tool_choice {
        ToolChoice::Auto if is_serial => json!({ "type": "auto" }),
        ToolChoice::Auto => return None,
        ToolChoice::Required => json!({ "type": "any" }),
        ToolChoice::None => return Some(json!({ "type": "none" })),
        ToolChoice::Named(name) => json!({ "type": "tool", "name": name }),
    };
    if is_serial {
        choice["disable_parallel_tool_use"] = json!(true);
    }
    Some(choice)
}

/// Effort and form of the answer; `None` if the request sets neither.
fn output_config(request: &ModelRequest<'_>) -> Option<Map<String, Value>> {
    let effort = request.model.effort.map(|effort| match effort {
        Effort::Low => json!("low"),
        Effort::Medium => json!("medium"),
        Effort::High => json!("high"),
    });
    let format = request.output_schema.map(|schema| json!({ "type": "json_schema", "schema": schema }));
    let members = [("effort", effort), ("format", format)].into_iter();
    let set: Map<_, _> = members.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    (!set.is_empty()).then_some(set)
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

fn wire_tools(tools: &[ToolSpec]) -> Vec<Value> {
    let mut tools: Vec<&ToolSpec> = tools.iter().collect();
    // Sort by name, so that another order of the same tools does not change the bytes and lose the prompt cache.
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    let tool = |tool: &ToolSpec| {
        json!({
            "name": tool.name, "description": tool.description, "input_schema": tool.parameters
        })
    };
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
