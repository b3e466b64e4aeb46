//! Helpers shared by the tests of both wire formats: requests, and accessors for events.

use std::sync::Arc;

use longhaul_domain::{TenantId, ToolCall};
use longhaul_sdk::{ToolEffect, ToolSpec, spec::ModelSpec};
use serde_json::json;
use uuid::Uuid;

use super::{
    Message, ModelError, ModelRequest, ReplyEvent, RequestFiles, ToolChoice,
    answer::{Answer, Scrub},
    calls::CallIds,
    sse::SseEvent,
    types::{FileRef, Part},
};

pub(super) fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: format!("does {name}"),
        parameters: json!({ "type": "object", "properties": { "q": { "type": "string" } } }),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

pub(super) fn result(call_id: &str, text: &str, is_error: bool) -> Message {
    Message::Tool { call_id: call_id.into(), name: "t".into(), text: text.into(), files: Vec::new(), is_error }
}

/// The transcript after a round trip through its stored bytes, as a resumed attempt sees it.
pub(super) fn stored(messages: &[Message]) -> Vec<Arc<Message>> {
    let restored = |message: &Message| Message::from_bytes(&message.to_bytes().unwrap()).unwrap();
    messages.iter().map(|message| Arc::new(restored(message))).collect()
}

pub(super) fn request<'a>(
    spec: &'a ModelSpec,
    messages: &'a [Arc<Message>],
    tools: &'a [ToolSpec],
) -> ModelRequest<'a> {
    ModelRequest {
        tenant: TenantId(Uuid::nil()),
        model: spec,
        messages,
        files: &crate::NO_FILES,
        tools,
        tool_choice: ToolChoice::Auto,
        idempotency_key: "key",
        traceparent: None,
        max_output_tokens: None,
        context_tokens: None,
        output_schema: None,
        cache: None,
    }
}

/// A picture, a paper and a note, and their bytes.
pub(super) fn files() -> ([FileRef; 3], RequestFiles) {
    let file = |hash: &str, media_type: &str, bytes, name: &str| FileRef {
        hash: hash.into(),
        media_type: media_type.into(),
        bytes,
        id: None,
        name: Some(name.into()),
    };
    let named = [
        file("aa", "image/png", 3, "p.png"),
        file("bb", "application/pdf", 4, "q.pdf"),
        file("cc", "text/csv", 3, "r.csv"),
    ];
    let bytes = [("aa", &b"png"[..]), ("bb", b"%PDF"), ("cc", b"1,2")];
    let bytes = bytes.map(|(hash, bytes)| (hash.to_owned(), bytes::Bytes::from_static(bytes)));
    (named, RequestFiles::new(bytes.into()))
}

/// A transcript with files of a caller and of calls.
pub(super) fn with_files() -> Vec<Message> {
    let ([picture, paper, note], _) = files();
    let parts =
        vec![Part::Text("see".into()), Part::Image(picture.clone()), Part::File(paper.clone()), Part::File(note)];
    let calls = vec![call("c1", "draw", "{}"), call("c2", "draw", "{}")];
    let drawn = |id: &str, files| Message::Tool {
        call_id: id.into(),
        name: "draw".into(),
        text: "drawn".into(),
        files,
        is_error: false,
    };
    vec![
        Message::User { parts },
        Message::Assistant { text: String::new(), calls, native: None },
        drawn("c1", vec![picture]),
        drawn("c2", vec![paper]),
        Message::user("go on"),
    ]
}

/// An id generator for a transcript that holds `messages`.
pub(super) fn ids(messages: &[Arc<Message>]) -> CallIds {
    CallIds::new(&request(&ModelSpec::default(), messages, &[]))
}

/// An event without a name.
pub(super) fn event(data: &str) -> SseEvent {
    SseEvent { name: String::new(), data: data.into() }
}

pub(super) fn error_inside(body: &[u8]) -> ModelError {
    ModelError::of_answer(Answer::of_model(None, body, &Scrub::default()), None)
}

/// The completed calls among the events, in order.
pub(super) fn completed(events: &[ReplyEvent]) -> Vec<(usize, ToolCall)> {
    events
        .iter()
        .filter_map(|event| match event {
            ReplyEvent::CallCompleted { index, call } => Some((*index, call.clone())),
            ReplyEvent::Begun | ReplyEvent::TextDelta(_) | ReplyEvent::CallStarted { .. } => None,
        })
        .collect()
}

/// The concatenated text of the events.
pub(super) fn told_text(events: &[ReplyEvent]) -> String {
    events
        .iter()
        .filter_map(|event| match event {
            ReplyEvent::TextDelta(text) => Some(text.as_str()),
            ReplyEvent::Begun | ReplyEvent::CallCompleted { .. } | ReplyEvent::CallStarted { .. } => None,
        })
        .collect()
}

/// Arguments that would change if parsed into a JSON value.
pub(super) const ODD_ARGUMENTS: &str =
    r#"{"n": 1e2, "z": -0.0, "z": 1, "s": "\ud800 \u0000", "big": 123456789012345678901234567890}"#;
