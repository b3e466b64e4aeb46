//! The messages of a transcript, independent of any provider, and their one encoding.
//!
//! Journals and sessions store a [`Message`] as the exact bytes of [`Message::to_bytes`], and the request to a model
//! is a function of those bytes alone, so that a resumed execution sends the same request. Therefore the arguments
//! of calls are text and never parsed values: `1e2`, `-0.0`, duplicate keys and lone-surrogate escapes stay as
//! the model wrote them. The version of the encoding is the journal format of the step that holds the message.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{FileId, ToolCall};

/// One entry of a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Instructions.
    System {
        /// The rendered prompt.
        text: String,
    },
    /// Parts from the caller, a validator or the loop.
    User {
        /// At least one.
        parts: Vec<Part>,
    },
    /// What the loop tells the model: about a limit, an empty reply, what a child has found.
    Notice { text: String },
    /// A message of the caller's own conversation that fits no other role: several texts, or a tool's output.
    Given {
        /// The role, as the caller names it.
        speaker: String,
        parts: Vec<String>,
    },
    /// One reply of the model.
    Assistant {
        /// The reply's text; empty if it holds only calls.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The calls, in the order written.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// The reply in the provider's own blocks, if text and calls cannot rebuild it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<NativeBlocks>,
    },
    /// The result of one call.
    Tool {
        /// The id of the answered call.
        call_id: String,
        name: String,
        /// The text for the model, already truncated to the size limit.
        text: String,
        /// Files that the result consists of beside its text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<FileRef>,
        /// True if the call failed; the text then describes the failure.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Message {
    /// Returns a reply that holds only text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), calls: Vec::new(), native: None }
    }

    pub fn user(text: impl Into<String>) -> Self {
        Self::User { parts: vec![Part::Text(text.into())] }
    }

    pub fn notice(text: impl Into<String>) -> Self {
        Self::Notice { text: text.into() }
    }

    pub fn system(text: impl Into<String>) -> Self {
        Self::System { text: text.into() }
    }

    /// The bytes that are stored, hashed and replayed: JSON with a fixed field order.
    ///
    /// # Errors
    /// Serialisation fails, which cannot happen for a message of strings.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    /// Parses the bytes written by [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// The bytes are not a message of this build.
    pub fn from_bytes(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// The message's text, for any role. Several parts are joined by line breaks, and a file is described: this is
    /// the message for a model that takes text only.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::User { parts } => match parts.as_slice() {
                [Part::Text(text)] => text.into(),
                parts => parts.iter().map(Part::text).collect::<Vec<_>>().join("\n").into(),
            },
            Self::Given { parts, .. } => match parts.as_slice() {
                [text] => text.into(),
                parts => parts.join("\n").into(),
            },
            Self::Tool { text, files, .. } if !files.is_empty() => {
                let described = files.iter().map(FileRef::description);
                std::iter::once(text.clone()).chain(described).collect::<Vec<_>>().join("\n").into()
            }
            Self::System { text } | Self::Notice { text } | Self::Assistant { text, .. } | Self::Tool { text, .. } => {
                text.into()
            }
        }
    }

    /// The files that the message refers to, in order.
    pub fn files(&self) -> impl Iterator<Item = &FileRef> {
        let (parts, files): (&[Part], &[FileRef]) = match self {
            Self::User { parts } => (parts, &[]),
            Self::Tool { files, .. } => (&[], files),
            Self::System { .. } | Self::Notice { .. } | Self::Given { .. } | Self::Assistant { .. } => (&[], &[]),
        };
        parts.iter().filter_map(Part::file).chain(files)
    }

    /// The calls of a reply; empty for any other role.
    #[must_use]
    pub fn calls(&self) -> &[ToolCall] {
        match self {
            Self::Assistant { calls, .. } => calls,
            Self::System { .. } | Self::User { .. } | Self::Notice { .. } | Self::Given { .. } | Self::Tool { .. } => {
                &[]
            }
        }
    }

    /// The role's name, as stored.
    #[must_use]
    pub fn role(&self) -> &'static str {
        match self {
            Self::System { .. } => "system",
            Self::User { .. } => "user",
            Self::Notice { .. } => "notice",
            Self::Given { .. } => "given",
            Self::Assistant { .. } => "assistant",
            Self::Tool { .. } => "tool",
        }
    }

    /// Estimated tokens, for limits when no provider has counted: text at four bytes each, and those of its files.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        let calls: usize = self.calls().iter().map(|call| call.name.len() + call.arguments.len()).sum();
        let files: u64 = self.files().map(FileRef::estimated_tokens).sum();
        estimate_tokens(self.text().len() + calls) + files
    }
}

/// One part of a user's message. In JSON a text is a string, and a file an object with one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A picture that the model sees.
    Image(FileRef),
    /// A document that the model reads.
    File(FileRef),
    #[serde(untagged)]
    Text(String),
}

impl Part {
    /// The part for a model that takes text only.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Image(file) | Self::File(file) => file.description().into(),
        }
    }

    /// The file of the part, if it is none of text.
    #[must_use]
    pub fn file(&self) -> Option<&FileRef> {
        match self {
            Self::Text(_) => None,
            Self::Image(file) | Self::File(file) => Some(file),
        }
    }
}

/// A stored file. The bytes are stored once per tenant, by their hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRef {
    /// SHA-256 of the bytes, in hexadecimal.
    pub hash: String,
    /// Such as `image/png`.
    pub media_type: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Id of the upload or artifact that the message names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<FileId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Kinds of files that wire formats tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Image,
    Pdf,
    /// UTF-8 text, which every model reads.
    Text,
    /// No wire format has it.
    Other,
}

impl FileRef {
    /// Tokens of an image of any size, at most: providers scale larger ones down.
    const IMAGE_TOKENS: u64 = 1_600;
    /// Bytes of a document per token: text, layout and fonts together.
    const DOCUMENT_BYTES: u64 = 30;
    /// Tokens of an image at most, over all providers: the highest price of a picture in full detail.
    const IMAGE_BOUND: u64 = 50_000;
    /// Bound of a document: tokens per byte, beside a part that does not depend on its length.
    const DOCUMENT_BOUND_PER_BYTE: u64 = 4;
    const DOCUMENT_BOUND: u64 = 50_000;
    /// Largest context window of a model, in tokens: no file takes more.
    const WINDOW: u64 = 1_000_000;

    /// The kind by which wire formats send the file.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        match self.media_type.as_str() {
            "image/png" | "image/jpeg" | "image/webp" => FileKind::Image,
            "application/pdf" => FileKind::Pdf,
            "application/json" => FileKind::Text,
            other if other.starts_with("text/") => FileKind::Text,
            _ => FileKind::Other,
        }
    }

    /// The file's name, or `default` for a file without one: some providers require a name.
    #[must_use]
    pub fn name_or(&self, default: &'static str) -> &str {
        self.name.as_deref().unwrap_or(default)
    }

    /// Tokens of the file in a prompt, at most.
    #[must_use]
    pub fn token_bound(&self) -> u64 {
        match self.kind() {
            FileKind::Image => Self::IMAGE_BOUND,
            FileKind::Pdf => {
                let by_length = self.bytes.saturating_mul(Self::DOCUMENT_BOUND_PER_BYTE);
                by_length.saturating_add(Self::DOCUMENT_BOUND).min(Self::WINDOW)
            }
            FileKind::Text => self.bytes,
            FileKind::Other => 0,
        }
    }

    /// The file for a model that cannot read it.
    #[must_use]
    pub fn description(&self) -> String {
        let name = self.name.as_deref().unwrap_or("without a name");
        format!("[file {name}, {}, {} bytes]", self.media_type, self.bytes)
    }

    /// Estimated tokens.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        match self.media_type.split('/').next() {
            Some("image") => Self::IMAGE_TOKENS,
            Some("text") => self.bytes.div_ceil(BYTES_PER_TOKEN as u64),
            _ => self.bytes.div_ceil(Self::DOCUMENT_BYTES),
        }
    }
}

/// Average bytes of text per token.
pub const BYTES_PER_TOKEN: usize = 4;

/// Estimated tokens of `bytes` bytes of text, at [`BYTES_PER_TOKEN`], rounded up.
#[must_use]
pub fn estimate_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

/// A reply in its provider's own blocks, kept if they hold more than text and calls (signed thinking, unusual order).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeBlocks {
    /// The blocks' wire format; other formats ignore the blocks and use text and calls.
    pub format: NativeFormat,
    /// The provider that wrote them, if others of the format may refuse them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The JSON text of each block, in order, sent back unchanged.
    pub blocks: Vec<String>,
}

/// A wire format whose replies may have to be sent back in their own blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NativeFormat {
    /// Content blocks of Anthropic's messages API.
    Anthropic,
    /// Members of a chat-completions message beside text and calls, then those of each call.
    #[serde(rename = "openai")]
    OpenAi,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file() -> impl Strategy<Value = FileRef> {
        (any::<String>(), any::<String>(), any::<u64>(), any::<Option<String>>())
            .prop_map(|(hash, media_type, bytes, name)| FileRef { hash, media_type, bytes, id: None, name })
    }

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![any::<String>().prop_map(Part::Text), file().prop_map(Part::Image), file().prop_map(Part::File)]
    }

    fn call() -> impl Strategy<Value = ToolCall> {
        any::<(String, String, String)>().prop_map(|(id, name, arguments)| ToolCall { id, name, arguments })
    }

    fn message() -> impl Strategy<Value = Message> {
        let native = proptest::option::of(any::<Vec<String>>().prop_map(|blocks| NativeBlocks {
            format: NativeFormat::Anthropic,
            provider: None,
            blocks,
        }));
        let assistant = (any::<String>(), proptest::collection::vec(call(), 0..4), native);
        let tool = (any::<(String, String, String, bool)>(), proptest::collection::vec(file(), 0..3));
        prop_oneof![
            any::<String>().prop_map(Message::system),
            any::<String>().prop_map(Message::notice),
            proptest::collection::vec(part(), 1..5).prop_map(|parts| Message::User { parts }),
            any::<(String, Vec<String>)>().prop_map(|(speaker, parts)| Message::Given { speaker, parts }),
            assistant.prop_map(|(text, calls, native)| Message::Assistant { text, calls, native }),
            tool.prop_map(|((call_id, name, text, is_error), files)| Message::Tool {
                call_id,
                name,
                text,
                files,
                is_error
            }),
        ]
    }

    proptest! {
        #[test]
        fn every_message_survives_its_bytes(message in message()) {
            let bytes = message.to_bytes().unwrap();
            let restored = Message::from_bytes(&bytes).unwrap();
            prop_assert_eq!(restored.to_bytes().unwrap(), bytes);
            prop_assert_eq!(restored, message);
        }
    }

    #[test]
    fn message_survives_its_stored_bytes() {
        let call =
            ToolCall { id: "a".into(), name: "f".into(), arguments: r#"{"n":1e2,"n":-0.0,"s":"\ud800"}"#.into() };
        let native = NativeBlocks {
            format: NativeFormat::Anthropic,
            provider: None,
            blocks: vec![r#"{"type": "thinking"}"#.into()],
        };
        let file = FileRef { hash: "ab".into(), media_type: "image/png".into(), bytes: 7, id: None, name: None };
        let tool = |is_error| Message::Tool {
            call_id: "a".into(),
            name: "f".into(),
            text: "\u{0}é".into(),
            files: Vec::new(),
            is_error,
        };
        let forms = [
            (Message::system("s"), r#"{"role":"system","text":"s"}"#.to_owned()),
            (Message::user("u"), r#"{"role":"user","parts":["u"]}"#.to_owned()),
            (
                Message::User { parts: vec![Part::Text("see".into()), Part::Image(file.clone())] },
                r#"{"role":"user","parts":["see",{"image":{"hash":"ab","media_type":"image/png","bytes":7}}]}"#
                    .to_owned(),
            ),
            (Message::assistant("t"), r#"{"role":"assistant","text":"t"}"#.to_owned()),
            (
                Message::Assistant { text: String::new(), calls: vec![call.clone()], native: Some(native) },
                format!(
                    concat!(
                        r#"{{"role":"assistant","calls":[{{"id":"a","name":"f","arguments":{}}}],"#,
                        r#""native":{{"format":"anthropic","blocks":["{{\"type\": \"thinking\"}}"]}}}}"#
                    ),
                    serde_json::to_string(&call.arguments).unwrap()
                ),
            ),
            (tool(false), r#"{"role":"tool","call_id":"a","name":"f","text":"\u0000é"}"#.to_owned()),
            (tool(true), r#"{"role":"tool","call_id":"a","name":"f","text":"\u0000é","is_error":true}"#.to_owned()),
        ];
        for (message, form) in forms {
            let bytes = message.to_bytes().unwrap();
            assert_eq!(String::from_utf8(bytes.clone()).unwrap(), form);
            let restored = Message::from_bytes(&bytes).unwrap();
            assert_eq!(restored, message);
            assert_eq!(restored.to_bytes().unwrap(), bytes);
        }
        assert!(Message::from_bytes(br#"{"role":"user","parts":["u"],"more":1}"#).is_err());
    }
}
