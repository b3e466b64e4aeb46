//! What users say in the chat-completions format: texts, pictures and documents.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    RequestFiles,
    files::{DataUrl, SentFile},
    types::{FileRef, Part},
};

/// A text where there are no other parts: compatible servers may know no parts.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum UserContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<WirePart<'a>>),
}

impl<'a> UserContent<'a> {
    /// Adds what is said next in the same message.
    pub(super) fn append(&mut self, more: Self) {
        *self = match (std::mem::replace(self, Self::Parts(Vec::new())), more) {
            (Self::Text(before), Self::Text(more)) => Self::Text(format!("{before}\n\n{more}").into()),
            (before, more) => {
                let mut parts = before.into_parts();
                parts.extend(more.into_parts());
                Self::Parts(parts)
            }
        };
    }

    fn into_parts(self) -> Vec<WirePart<'a>> {
        match self {
            Self::Text(text) => vec![WirePart::Text { text }],
            Self::Parts(parts) => parts,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum WirePart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    File { file: WireFile<'a> },
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

#[derive(Serialize)]
pub(super) struct WireFile<'a> {
    filename: &'a str,
    file_data: DataUrl<'a>,
}

pub(super) fn user_content<'a>(parts: &'a [Part], files: &RequestFiles) -> UserContent<'a> {
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
pub(super) fn files_of_result<'a>(
    (call_id, name): (&str, &str),
    files: &'a [FileRef],
    bytes: &RequestFiles,
) -> Vec<WirePart<'a>> {
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
