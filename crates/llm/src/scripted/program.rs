//! A script, compiled once: a constant reply, or a minijinja template that renders one.
//!
//! Anyone who may write agents writes programs, so they run with bounded instructions, work and memory.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use longhaul_guards::template::Engine;
use minijinja::Value;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{helpers, turn};
use crate::{Message, ModelError, ModelRequest};

/// Template instructions per reply: some tens of milliseconds.
const FUEL: u64 = 2_000_000;

/// Largest program and largest rendered reply, in bytes.
const MAX_BYTES: usize = 4 * 1024 * 1024;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let mut engine = Engine::new(FUEL, MAX_BYTES);
    helpers::register(&mut engine);
    engine
});

/// The reply computed by a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) calls: Vec<AnswerCall>,
    pub(super) latency: Option<Duration>,
}

/// A call without its id, which depends on the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnswerCall {
    pub(super) name: String,
    pub(super) arguments: String,
}

#[derive(Debug)]
pub(super) enum Program {
    /// A reply without template syntax.
    Constant(Answer),
    /// A template, and the variables it reads; only these are built.
    Template { source: String, reads: HashSet<String> },
}

impl Program {
    pub(super) fn compile(script: &str) -> Result<Self, ModelError> {
        if script.len() > MAX_BYTES {
            return Err(failed(format!("it is larger than {MAX_BYTES} bytes")));
        }
        if !["{{", "{%", "{#"].iter().any(|opening| script.contains(opening)) {
            return parse(script).map(Self::Constant);
        }
        let reads = ENGINE.check(script).map_err(|error| template_failed(&error))?;
        Ok(Self::Template { source: script.to_owned(), reads })
    }

    pub(super) async fn answer(&self, request: &ModelRequest<'_>) -> Result<Answer, ModelError> {
        match self {
            Self::Constant(answer) => Ok(answer.clone()),
            Self::Template { source, reads } => {
                let bytes = request.messages.iter().map(|message| message.text().len()).sum();
                let rendered = ENGINE.render(source, bytes, || context(reads, request)).await;
                parse(&rendered.map_err(|error| template_failed(&error))?)
            }
        }
    }
}

/// The variables of docs/guide/scripted-model.md, limited to those that the program reads.
fn context(reads: &HashSet<String>, request: &ModelRequest<'_>) -> Value {
    let mut pairs: Vec<(&str, Value)> = Vec::with_capacity(reads.len());
    if reads.contains("messages") {
        pairs.push(("messages", request.messages.iter().map(message_value).collect()));
    }
    if reads.contains("tools") {
        pairs.push(("tools", request.tools.iter().map(|tool| tool.name.as_str()).collect()));
    }
    if reads.contains("turn") {
        pairs.push(("turn", turn(request.messages).into()));
    }
    if reads.contains("last") {
        pairs.push(("last", request.messages.last().map_or(Value::UNDEFINED, message_value)));
    }
    if reads.contains("input_text") {
        let first = request.messages.iter().find(|message| matches!(message.as_ref(), Message::User { .. }));
        pairs.push(("input_text", first.map_or_else(String::new, |message| message.text().into_owned()).into()));
    }
    Value::from_pairs(pairs)
}

fn message_value(message: &Arc<Message>) -> Value {
    let calls: Value = message
        .calls()
        .iter()
        .map(|call| {
            Value::from_pairs([
                ("id", Value::from(call.id.as_str())),
                ("name", call.name.as_str().into()),
                ("arguments", call.arguments.as_str().into()),
            ])
        })
        .collect();
    let (name, call_id, is_error) = match message.as_ref() {
        Message::Tool { name, call_id, is_error, .. } => (name.as_str(), call_id.as_str(), *is_error),
        Message::System { .. }
        | Message::User { .. }
        | Message::Notice { .. }
        | Message::Given { .. }
        | Message::Assistant { .. } => ("", "", false),
    };
    // A notice is a user's message, as providers get it.
    let role = if matches!(**message, Message::Notice { .. }) { "user" } else { message.role() };
    Value::from_pairs([
        ("role", Value::from(role)),
        ("text", message.text().into_owned().into()),
        ("calls", calls),
        ("name", name.into()),
        ("call_id", call_id.into()),
        ("is_error", is_error.into()),
    ])
}

/// The JSON rendered by a program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rendered {
    text: Option<serde_json::Value>,
    #[serde(default)]
    calls: Vec<RenderedCall>,
    raw: Option<String>,
    latency_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenderedCall {
    name: String,
    arguments: Option<Box<RawValue>>,
}

fn parse(rendered: &str) -> Result<Answer, ModelError> {
    let rendered: Rendered = serde_json::from_str(rendered.trim()).map_err(|error| {
        failed(format!("it did not render a reply as docs/guide/scripted-model.md describes: {error}"))
    })?;
    let text = match (rendered.text, rendered.raw) {
        (Some(_), Some(_)) => return Err(failed("a reply has `text` or `raw`, not both")),
        (None, Some(raw)) => raw,
        (Some(serde_json::Value::String(text)), None) => text,
        (Some(serde_json::Value::Null) | None, None) => String::new(),
        (Some(value), None) => value.to_string(),
    };
    let calls = rendered.calls.into_iter().map(call).collect::<Result<Vec<_>, _>>()?;
    if text.is_empty() && calls.is_empty() {
        return Err(ModelError::Empty);
    }
    Ok(Answer { text, calls, latency: rendered.latency_ms.map(Duration::from_millis) })
}

/// Converts a call. String arguments are used as raw text, so that a program can produce invalid JSON.
fn call(call: RenderedCall) -> Result<AnswerCall, ModelError> {
    let arguments = match call.arguments {
        None => "{}".to_owned(),
        Some(raw) if raw.get().starts_with('"') => {
            serde_json::from_str(raw.get()).map_err(|error| failed(format!("arguments of a call: {error}")))?
        }
        Some(raw) => raw.get().to_owned(),
    };
    Ok(AnswerCall { name: call.name, arguments })
}

fn failed(what: impl Into<String>) -> ModelError {
    ModelError::Script { what: what.into() }
}

fn template_failed(error: &minijinja::Error) -> ModelError {
    let line = error.line().map_or_else(String::new, |line| format!(" in line {line}"));
    let detail = error.detail().map_or_else(String::new, |detail| format!(": {detail}"));
    failed(format!("{}{line}{detail}", error.kind()))
}
