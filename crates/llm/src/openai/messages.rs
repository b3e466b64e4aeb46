//! The transcript as messages of the chat-completions format, in an order that strict servers and chat templates take.
//!
//! The format itself leaves the order free; Mistral's API and many templates do not. So there is one system message, at
//! the front; then a user begins, and users and assistants alternate, also around results of calls. What Longhaul says
//! to the model rides in the message that is there.

use std::borrow::Cow;

use longhaul_domain::ToolCall;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    carried::sent_back,
    content::{UserContent, WirePart, files_of_result, user_content},
};
use crate::{
    Message, ModelRequest, RequestFiles,
    calls::{wire_name, wire_object},
    files::SentFile,
    lenient::Members,
};

/// Between a result and what a user says next: the turn was interrupted there.
const INTERRUPTED: &str = "[This turn ended here.]";
/// Between a result and its files, which the format only takes from a user.
const FILES_FOLLOW: &str = "[The files of these results follow.]";
/// In front of a conversation that does not begin with a user.
const BEGINS: &str = "[The conversation begins.]";

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(super) enum WireMessage<'a> {
    System {
        content: Cow<'a, str>,
    },
    User {
        content: UserContent<'a>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
    #[serde(untagged)]
    Assistant(WireReply<'a>),
}

pub(super) struct WireReply<'a> {
    text: Cow<'a, str>,
    members: Members,
    calls: Vec<WireCall<'a>>,
}

impl Serialize for WireReply<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", "assistant")?;
        if !self.members.has("content") {
            // Null if there are only calls: some servers refuse empty text.
            let content = (!self.text.is_empty() || self.calls.is_empty()).then_some(&self.text);
            map.serialize_entry("content", &content)?;
        }
        for (name, raw) in self.members.iter() {
            map.serialize_entry(name, raw)?;
        }
        if !self.calls.is_empty() {
            map.serialize_entry("tool_calls", &self.calls)?;
        }
        map.end()
    }
}

pub(super) struct WireCall<'a> {
    call: &'a ToolCall,
    members: Members,
}

impl Serialize for WireCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Function<'a>(&'a ToolCall, Members);
        impl Serialize for Function<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("name", &wire_name(&self.0.name))?;
                map.serialize_entry("arguments", &wire_object(&self.0.arguments))?;
                for (name, raw) in self.1.iter() {
                    map.serialize_entry(name, raw)?;
                }
                map.end()
            }
        }
        let mut members = self.members.clone();
        let function = Function(self.call, members.object("function"));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.call.id)?;
        map.serialize_entry("type", "function")?;
        map.serialize_entry("function", &function)?;
        for (name, raw) in members.iter() {
            map.serialize_entry(name, raw)?;
        }
        map.end()
    }
}

/// The transcript. Results of calls are text only in this format: their files follow the last result of the turn in a
/// user's message.
pub(super) fn wire_messages<'a>(request: &ModelRequest<'a>, provider: &str) -> Vec<WireMessage<'a>> {
    let mut wire = Conversation(Vec::with_capacity(request.messages.len()));
    let mut of_results = Vec::new();
    for message in request.messages {
        if !matches!(**message, Message::Tool { .. } | Message::Notice { .. }) {
            wire.add_files(std::mem::take(&mut of_results));
        }
        match &**message {
            Message::System { text } => wire.add_system(text),
            Message::Notice { text } => wire.add_notice(text),
            Message::User { parts } => wire.add_user(user_content(parts, request.files), INTERRUPTED),
            Message::Given { .. } => wire.add_user(UserContent::Text(message.text()), INTERRUPTED),
            Message::Assistant { text, calls, native } => {
                let mut kept = sent_back(native.as_ref(), provider);
                let members = kept.next().unwrap_or_default();
                let kept = kept.chain(std::iter::repeat_with(Members::default));
                let calls = calls.iter().zip(kept).map(|(call, members)| WireCall { call, members }).collect();
                wire.add_reply(WireReply { text: text.into(), members, calls });
            }
            Message::Tool { call_id, name, files, .. } => {
                wire.0.push(WireMessage::Tool { tool_call_id: call_id, content: result_text(message, request.files) });
                of_results.extend(files_of_result((call_id, name), files, request.files));
            }
        }
    }
    wire.add_files(of_results);
    wire.0
}

/// The text of a result. The format has no flag for a failed call; the text describes the failure.
fn result_text<'a>(message: &'a Message, files: &RequestFiles) -> Cow<'a, str> {
    let Message::Tool { text, files: own, .. } = message else { return message.text() };
    if own.is_empty() {
        return text.into();
    }
    let of_file = |file| match files.sent(file) {
        SentFile::Text(text) => text,
        SentFile::Image(sent) | SentFile::Pdf(sent) => Cow::Owned(sent.file.description()),
    };
    let texts = std::iter::once(Cow::Borrowed(text.as_str())).chain(own.iter().map(of_file));
    texts.collect::<Vec<_>>().join("\n").into()
}

struct Conversation<'a>(Vec<WireMessage<'a>>);

impl<'a> Conversation<'a> {
    /// Instructions at the front are one message; later ones are a notice. Those of a conversation that begins with
    /// what was erased go to its front.
    fn add_system(&mut self, text: &'a str) {
        match self.0.as_mut_slice() {
            [WireMessage::System { content }] => append(content, text),
            [WireMessage::System { .. }, ..] => self.add_notice(text),
            _ => self.0.insert(0, WireMessage::System { content: text.into() }),
        }
    }

    /// A notice rides in the result or the user's message before it.
    fn add_notice(&mut self, text: &'a str) {
        match self.0.last_mut() {
            Some(WireMessage::Tool { content, .. }) => append(content, text),
            _ => self.add_user(UserContent::Text(text.into()), INTERRUPTED),
        }
    }

    fn add_files(&mut self, parts: Vec<WirePart<'a>>) {
        if !parts.is_empty() {
            self.add_user(UserContent::Parts(parts), FILES_FOLLOW);
        }
    }

    /// Adds what a user says. After a result, an assistant's message with this text goes before it.
    fn add_user(&mut self, content: UserContent<'a>, after_result: &'static str) {
        match self.0.last_mut() {
            Some(WireMessage::User { content: before }) => before.append(content),
            Some(WireMessage::Tool { .. }) => {
                let reply = WireReply { text: after_result.into(), members: Members::default(), calls: Vec::new() };
                self.0.extend([WireMessage::Assistant(reply), WireMessage::User { content }]);
            }
            Some(WireMessage::System { .. } | WireMessage::Assistant(_)) | None => {
                self.0.push(WireMessage::User { content });
            }
        }
    }

    fn add_reply(&mut self, reply: WireReply<'a>) {
        match self.0.last_mut() {
            Some(WireMessage::Assistant(before)) if before.calls.is_empty() => {
                // Two replies in a row: the first was paused, or broke.
                append(&mut before.text, &reply.text);
                before.members = reply.members;
                before.calls = reply.calls;
            }
            Some(WireMessage::User { .. } | WireMessage::Tool { .. } | WireMessage::Assistant(_)) => {
                self.0.push(WireMessage::Assistant(reply));
            }
            Some(WireMessage::System { .. }) | None => {
                let content = UserContent::Text(BEGINS.into());
                self.0.extend([WireMessage::User { content }, WireMessage::Assistant(reply)]);
            }
        }
    }
}

fn append(text: &mut Cow<'_, str>, more: &str) {
    if more.is_empty() {
        return;
    }
    let text = text.to_mut();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}
