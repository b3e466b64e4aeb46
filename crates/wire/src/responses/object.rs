//! The response object. Its keys and their nullness are those of Open Responses: members that are numbers are never
//! null.

use longhaul_domain::message::{NativeBlocks, NativeFormat};
use serde_json::{Map, Value, json};

use crate::{End, Tokens};

/// The part of a response that is known before anything happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The text of a [`ResponseId`](super::ResponseId).
    pub id: String,
    /// Unix seconds.
    pub created_at: i64,
    /// The model's name as the request has it.
    pub model: String,
    /// Members of the request that the object repeats: [`Create::echo`](super::Create::echo).
    pub echo: Value,
    pub previous_response_id: Option<String>,
    /// True for one call of a model, whose functions are all its caller's; false for a run of an agent or definition.
    pub one_call: bool,
    pub is_background: bool,
}

/// The statuses of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Queued,
    InProgress,
    Completed,
    Failed,
    Incomplete,
    Cancelled,
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn is_over(self) -> bool {
        match self {
            Self::Queued | Self::InProgress => false,
            Self::Completed | Self::Failed | Self::Incomplete | Self::Cancelled => true,
        }
    }

    /// The event that ends a stream with this status. No event is named after a cancel: SDKs and suites know three
    /// ends, of which `response.incomplete` raises nothing and carries the status.
    pub(super) fn event(self) -> &'static str {
        match self {
            Self::Queued => "response.queued",
            Self::InProgress => "response.in_progress",
            Self::Completed => "response.completed",
            Self::Failed => "response.failed",
            Self::Incomplete | Self::Cancelled => "response.incomplete",
        }
    }
}

/// The part of a response that changes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Progress {
    pub(super) status: Status,
    pub(super) output: Vec<Value>,
    pub(super) tokens: Tokens,
    /// Null unless the response failed.
    pub(super) error: Value,
    /// Unix seconds, of a response that is completed.
    pub(super) completed_at: Option<i64>,
}

/// The response as it stands.
pub(super) fn render(header: &Header, progress: &Progress) -> Value {
    let mut object = defaults();
    if let Value::Object(echo) = &header.echo {
        object.extend(echo.clone());
    }
    let cut = json!({ "reason": "max_output_tokens" });
    let usage = progress.status.is_over().then(|| usage(progress.tokens));
    let members = json!({
        "id": header.id,
        "object": "response",
        "created_at": header.created_at,
        "completed_at": progress.completed_at,
        "status": progress.status.name(),
        "incomplete_details": (progress.status == Status::Incomplete).then_some(cut),
        "model": header.model,
        "previous_response_id": header.previous_response_id,
        "output": progress.output,
        "error": progress.error,
        "usage": usage,
        "background": header.is_background,
    });
    if let Value::Object(members) = members {
        object.extend(members);
    }
    Value::Object(object)
}

/// The members that repeat the request, as they are for a request that says nothing.
pub(super) fn defaults() -> Map<String, Value> {
    let defaults = json!({
        "instructions": null,
        "tools": [],
        "tool_choice": "auto",
        "truncation": "disabled",
        "parallel_tool_calls": true,
        "text": { "format": { "type": "text" } },
        "temperature": 1.0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "reasoning": { "effort": null, "summary": null },
        "max_output_tokens": null,
        "max_tool_calls": null,
        "store": true,
        "background": false,
        "service_tier": "default",
        "metadata": {},
        "safety_identifier": null,
        "prompt_cache_key": null,
    });
    let Value::Object(defaults) = defaults else { return Map::new() };
    defaults
}

/// Tokens in the shape of `usage`.
#[must_use]
pub fn usage(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input,
        "input_tokens_details": { "cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_write },
        "output_tokens": tokens.output,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": tokens.input.saturating_add(tokens.output),
    })
}

/// The `error` of a failed response; null for any other end. The wire has a closed set of codes, so that ours is in
/// the message.
pub(super) fn error(end: &End) -> Value {
    match end {
        End::Failed { code, summary, .. } => {
            let is_limited = code.contains("rate_limit") || code == "model_quota_exhausted";
            let wire_code = if is_limited { "rate_limit_exceeded" } else { "server_error" };
            json!({ "code": wire_code, "message": format!("{summary} ({code})") })
        }
        End::Finished { .. } | End::Cut | End::Cancelled => Value::Null,
    }
}

/// The readable thoughts of a reply, in its provider's own blocks.
pub(super) fn thoughts(native: &NativeBlocks) -> Option<String> {
    let blocks = native.blocks.iter().filter_map(|block| serde_json::from_str::<Value>(block).ok());
    let text_of = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let texts: Vec<String> = match native.format {
        NativeFormat::Anthropic => {
            let thinking = blocks.filter(|block| block.get("type").and_then(Value::as_str) == Some("thinking"));
            thinking.filter_map(|block| text_of(block.get("thinking"))).collect()
        }
        NativeFormat::OpenAi => blocks
            .filter_map(|block| text_of(block.get("reasoning_content")).or_else(|| text_of(block.get("reasoning"))))
            .collect(),
    };
    let text = texts.join("\n\n");
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(format: NativeFormat, blocks: &[Value]) -> NativeBlocks {
        NativeBlocks { format, provider: None, blocks: blocks.iter().map(Value::to_string).collect() }
    }

    #[test]
    fn only_readable_thoughts_are_told() {
        let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let hidden = json!({ "type": "redacted_thinking", "data": "x" });
        let shown = thoughts(&native(NativeFormat::Anthropic, &[thinking, hidden.clone(), json!(7)]));
        assert_eq!(shown.as_deref(), Some("hm"));
        assert_eq!(thoughts(&native(NativeFormat::Anthropic, &[hidden, json!({ "type": "thinking" })])), None);
        let members = json!({ "reasoning_content": "so" });
        assert_eq!(thoughts(&native(NativeFormat::OpenAi, &[members, json!({})])).as_deref(), Some("so"));
        let odd = NativeBlocks { format: NativeFormat::OpenAi, provider: None, blocks: vec!["{".into()] };
        assert_eq!(thoughts(&odd), None);
    }

    #[test]
    fn failures_keep_their_code_in_the_message() {
        let failed = |code: &str| End::Failed {
            class: "transient".into(),
            code: code.into(),
            summary: "It failed".into(),
            detail: None,
        };
        let limited = json!({ "code": "rate_limit_exceeded", "message": "It failed (model_rate_limited)" });
        assert_eq!(error(&failed("model_rate_limited")), limited);
        assert_eq!(error(&failed("panic"))["code"], "server_error");
        assert_eq!(error(&End::Cut), Value::Null);
    }
}
