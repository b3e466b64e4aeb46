//! The conversation of a request as messages of a transcript. Files within it are stored as uploads.

use std::{collections::HashMap, fmt};

use bytes::Bytes;
use longhaul_domain::{
    FileId, TenantId,
    input_parts::{MAX_BYTES, MAX_FILES},
    message::{FileKind, FileRef, Message, Part as MessagePart},
};
use longhaul_files::media_type;
use longhaul_store::files::NewUpload;
use longhaul_wire::{Fault, Inline, InlineKind, Item, Part, Source};

use super::refused::Answer;
use crate::{error::ApiError, state::ApiState};

/// Converts the items of one request.
pub(super) struct Parts<'a> {
    state: &'a ApiState,
    tenant: TenantId,
    files: Vec<FileId>,
    bytes: u64,
    /// Names of the tools of calls, by id.
    called: HashMap<String, String>,
}

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<'a> Parts<'a> {
    pub(super) fn new(state: &'a ApiState, tenant: TenantId) -> Self {
        Self { state, tenant, files: Vec::new(), bytes: 0, called: HashMap::new() }
    }

    /// The uploads that the messages name.
    pub(super) fn into_files(self) -> Vec<FileId> {
        self.files
    }

    /// # Errors
    /// A file is of no accepted type, unknown or too large, or Postgres is unavailable.
    pub(super) async fn messages(&mut self, items: &[Item]) -> Answer<Vec<Message>> {
        let mut messages = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Item::System(text) => messages.push(Message::system(text.clone())),
                Item::User(parts) => messages.push(self.user(parts).await?),
                // Clients send back what a void turn has left; models refuse a reply without content.
                Item::Assistant { text, calls, native: None } if text.is_empty() && calls.is_empty() => {}
                Item::Assistant { text, calls, native } => {
                    self.called.extend(calls.iter().map(|call| (call.id.clone(), call.name.clone())));
                    let (text, calls, native) = (text.clone(), calls.clone(), native.clone());
                    self.assistant(&mut messages, Message::Assistant { text, calls, native });
                }
                Item::Result { call_id, name, text, files, is_error } => {
                    let name = name.clone().or_else(|| self.called.get(call_id).cloned());
                    let mut stored = Vec::new();
                    for file in files {
                        stored.push(self.file(file).await?);
                    }
                    messages.push(Message::Tool {
                        call_id: call_id.clone(),
                        name: name.unwrap_or_default(),
                        text: text.clone(),
                        files: stored,
                        is_error: *is_error,
                    });
                }
                // A decision belongs to the run that waits for it, and says nothing to another one.
                Item::Approval { .. } => {}
            }
        }
        Ok(messages)
    }

    /// Adds a reply. Items of one reply follow each other: a text, then its calls.
    fn assistant(&self, messages: &mut Vec<Message>, reply: Message) {
        let Message::Assistant { text, calls, native: None } = &reply else { return messages.push(reply) };
        match messages.last_mut() {
            Some(Message::Assistant { text: before, calls: all, native: None })
                if text.is_empty() || (before.is_empty() && all.is_empty()) =>
            {
                before.push_str(text);
                all.extend(calls.iter().cloned());
            }
            _ => messages.push(reply),
        }
    }

    async fn user(&mut self, parts: &[Part]) -> Answer<Message> {
        let mut own = Vec::with_capacity(parts.len());
        for part in parts {
            own.push(match part {
                Part::Text(text) => MessagePart::Text(text.clone()),
                Part::File(inline) => {
                    let file = self.file(inline).await?;
                    match file.kind() {
                        FileKind::Image => MessagePart::Image(file),
                        FileKind::Pdf | FileKind::Text | FileKind::Other => MessagePart::File(file),
                    }
                }
            });
        }
        if own.is_empty() {
            own.push(MessagePart::Text(String::new()));
        }
        Ok(Message::User { parts: own })
    }

    /// The stored file of one within the request.
    async fn file(&mut self, inline: &Inline) -> Answer<FileRef> {
        if self.files.len() >= MAX_FILES {
            return Err(Fault::invalid(&inline.at, format!("is one file more than {MAX_FILES}")).into());
        }
        let file = match &inline.source {
            Source::Data(bytes) => self.upload(inline, bytes).await?,
            Source::Uploaded(id) => self.uploaded(inline, id).await?,
        };
        self.bytes = self.bytes.saturating_add(file.bytes);
        if self.bytes > MAX_BYTES {
            return Err(Fault::invalid(&inline.at, format!("makes the files longer than {MAX_BYTES} bytes")).into());
        }
        self.files.extend(file.id);
        Ok(file)
    }

    async fn upload(&self, inline: &Inline, bytes: &[u8]) -> Answer<FileRef> {
        let declared = inline.media_type.as_deref();
        let media_type =
            media_type::accepted(bytes, declared).map_err(|mismatch| wrong(inline, mismatch.to_string()))?;
        if inline.kind == InlineKind::Image && !media_type.starts_with("image/") {
            return Err(wrong(inline, format!("is {media_type} and no image")).into());
        }
        let name = inline.name.clone().filter(|name| media_type::is_safe_name(name));
        let bytes = Bytes::copy_from_slice(bytes);
        let hash = self.state.files.put(self.tenant, &bytes).await.map_err(ApiError::from)?;
        let kept = self.state.files.upload_kept();
        let new = NewUpload { tenant: self.tenant, hash, length: bytes.len() as u64, media_type, name, kept };
        let (file, _) = self.state.store.put_upload(new).await?;
        Ok(file.reference())
    }

    async fn uploaded(&self, inline: &Inline, id: &str) -> Answer<FileRef> {
        let gone = || wrong(inline, "is no uploaded file, or it has expired".to_owned());
        let id: FileId = id.parse().map_err(|_| gone())?;
        let found = self.state.store.find_uploads(self.tenant, &[id]).await?;
        Ok(found.first().ok_or_else(gone)?.reference())
    }

    /// The text of a message's parts.
    pub(super) fn text_of(parts: &[Part]) -> String {
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::File(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

fn wrong(inline: &Inline, message: String) -> Fault {
    Fault::invalid(inline.at.trim_start_matches('/').replace('/', "."), message)
}

/// Bytes of the texts of a conversation.
pub(super) fn text_bytes(items: &[Item]) -> usize {
    let bytes = items.iter().map(|item| match item {
        Item::System(text) => text.len(),
        Item::User(parts) => Parts::text_of(parts).len(),
        Item::Assistant { text, calls, .. } => {
            text.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
        Item::Result { text, .. } => text.len(),
        Item::Approval { .. } => 0,
    });
    bytes.sum()
}
