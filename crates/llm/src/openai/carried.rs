//! What a server wants back with a turn: the members of a message and of its calls that this build does not know, such
//! as `reasoning_content` (`DeepSeek`), `reasoning_details` (`OpenRouter`) and `extra_content` (Gemini).
//!
//! They are kept as written. Members that arrive in pieces are joined: texts end to end, lists item after item.

use std::collections::BTreeMap;

use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{NativeBlocks, NativeFormat, lenient::Members, wire_text::WireText};

/// Members of an item of a list whose text arrives in pieces; the others are repeated with each piece.
const TEXTS: [&str; 6] = ["text", "summary", "thinking", "reasoning", "content", "data"];

#[derive(Debug)]
enum Kept {
    Once(Box<RawValue>),
    Text(WireText),
    Joined(Value),
}

#[derive(Debug, Default)]
pub(super) struct Carried(BTreeMap<String, Kept>);

impl Carried {
    /// Adds the members that are left of a message or a call. Those that say nothing are left out.
    pub(super) fn add(&mut self, members: Members) {
        for (name, raw) in members.said().into_iter() {
            let joined = match self.0.remove(&name) {
                None => Kept::Once(raw),
                Some(before) => before.join(raw),
            };
            self.0.insert(name, joined);
        }
    }

    /// Adds the members that are left of an object inside a message or a call.
    pub(super) fn add_under(&mut self, name: &str, members: Members) {
        if !members.is_empty()
            && let Ok(raw) = to_raw_value(&members)
        {
            self.add(std::iter::once((name.to_owned(), raw)).collect());
        }
    }

    /// Adds the text of a message whose content is kept as a list of parts.
    pub(super) fn add_text_part(&mut self, text: &str) {
        if !text.is_empty()
            && self.0.contains_key("content")
            && let Ok(raw) = to_raw_value(&json!([{ "type": "text", "text": text }]))
        {
            self.add(std::iter::once(("content".to_owned(), raw)).collect());
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a text under a name of its own.
    pub(super) fn set_text(&mut self, name: &str, text: &str) {
        if let Ok(raw) = to_raw_value(text) {
            self.0.insert(name.to_owned(), Kept::Once(raw));
        }
    }

    fn into_json(self) -> String {
        let mut members = Members::default();
        for (name, kept) in self.0 {
            let raw = match kept {
                Kept::Once(raw) => Ok(raw),
                Kept::Text(text) => to_raw_value(&text.into_prose()),
                Kept::Joined(value) => to_raw_value(&value),
            };
            if let Ok(raw) = raw {
                members.insert(&name, raw);
            }
        }
        serde_json::to_string(&members).unwrap_or_default()
    }
}

impl Kept {
    fn join(self, more: Box<RawValue>) -> Self {
        let is_text = |raw: &RawValue| raw.get().starts_with('"');
        match self {
            Self::Once(raw) if is_text(&raw) && is_text(&more) => {
                Self::Text(WireText::of_value(&raw).unwrap_or_default()).join(more)
            }
            Self::Once(raw) => match serde_json::from_str(raw.get()) {
                Ok(value) => Self::Joined(value).join(more),
                Err(_) => Self::Once(more),
            },
            Self::Text(mut text) if is_text(&more) => {
                text.append(&WireText::of_value(&more).unwrap_or_default());
                Self::Text(text)
            }
            Self::Text(_) => Self::Once(more),
            Self::Joined(mut value) => {
                if let Ok(more) = serde_json::from_str(more.get()) {
                    join(&mut value, more, true);
                }
                Self::Joined(value)
            }
        }
    }
}

/// Joins a further piece to a value. A text is joined if it `is_piece`; otherwise the later one counts.
fn join(value: &mut Value, more: Value, is_piece: bool) {
    match (value, more) {
        (Value::String(text), Value::String(more)) if is_piece => text.push_str(&more),
        (Value::Array(items), Value::Array(more)) => {
            for item in more {
                // Pieces of one item have its index and its type.
                let same = |other: &&mut Value| {
                    item.get("index").is_some_and(|index| !index.is_null())
                        && ["index", "type"].iter().all(|name| other.get(name) == item.get(name))
                };
                match items.last_mut().filter(same) {
                    Some(last) => join(last, item, true),
                    None => items.push(item),
                }
            }
        }
        (Value::Object(members), Value::Object(more)) => {
            for (name, more) in more {
                let is_piece = TEXTS.contains(&name.as_str());
                join(members.entry(name).or_insert(Value::Null), more, is_piece);
            }
        }
        (_, Value::Null) => {}
        (value, more) => *value = more,
    }
}

/// The members of a message and of its calls, in this order; `None` if there are none.
pub(super) fn native(provider: &str, message: Carried, calls: Vec<Carried>) -> Option<NativeBlocks> {
    let has_any = !message.is_empty() || calls.iter().any(|call| !call.is_empty());
    has_any.then(|| NativeBlocks {
        format: NativeFormat::OpenAi,
        provider: Some(provider.to_owned()),
        blocks: std::iter::once(message).chain(calls).map(Carried::into_json).collect(),
    })
}

/// The members kept of a reply, to be sent back: of the message, and of each call. Empty for a reply of another
/// provider, which may refuse them.
pub(super) fn sent_back(native: Option<&NativeBlocks>, provider: &str) -> impl Iterator<Item = Members> {
    let own =
        native.filter(|native| native.format == NativeFormat::OpenAi && native.provider.as_deref() == Some(provider));
    let blocks = own.map(|native| native.blocks.as_slice()).unwrap_or_default();
    blocks.iter().map(|block| Members::read(block.as_bytes()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(pieces: &[&str]) -> String {
        let mut carried = Carried::default();
        for piece in pieces {
            carried.add(Members::read(piece.as_bytes()).unwrap());
        }
        carried.into_json()
    }

    #[test]
    fn members_are_kept_as_written() {
        let odd = r#"{"a":{"n":1e2,"s":"\ud800 \u0041", "z" : -0.0},"b":12345678901234567890123}"#;
        assert_eq!(carried(&[odd]), odd);
        assert_eq!(carried(&[r#"{"a":null,"b":[],"c":"","d":{}}"#]), "{}");
    }

    #[test]
    fn pieces_are_joined() {
        assert_eq!(carried(&[r#"{"r":"a\ud83d"}"#, r#"{"r":"\ude00b"}"#, r#"{"r":null}"#]), r#"{"r":"a😀b"}"#);
        let details = [
            r#"{"d":[{"type":"reasoning.text","index":0,"text":"one","signature":null,"format":"x"}]}"#,
            r#"{"d":[{"type":"reasoning.text","index":0,"text":" two","format":"x"}]}"#,
            r#"{"d":[{"type":"reasoning.text","index":0,"signature":"sig"}]}"#,
            r#"{"d":[{"type":"reasoning.encrypted","index":0,"data":"e"},{"text":"no index"},{"text":"other"}]}"#,
        ];
        let joined = concat!(
            r#"{"d":[{"format":"x","index":0,"signature":"sig","text":"one two","type":"reasoning.text"},"#,
            r#"{"data":"e","index":0,"type":"reasoning.encrypted"},{"text":"no index"},{"text":"other"}]}"#
        );
        assert_eq!(carried(&details), joined);
        assert_eq!(
            carried(&[r#"{"e":{"g":{"s":"1"}}}"#, r#"{"e":{"g":{"t":2,"s":"3"}}}"#]),
            r#"{"e":{"g":{"s":"3","t":2}}}"#
        );
    }

    #[test]
    fn members_go_back_to_their_provider_alone() {
        let mut message = Carried::default();
        message.set_text("reasoning", "why");
        let native = native("deep", message, vec![Carried::default()]).unwrap();
        let back = |provider| sent_back(Some(&native), provider).map(|of| of.iter().count()).collect::<Vec<_>>();
        assert_eq!((back("deep"), back("other")), (vec![1, 0], vec![]));
        assert!(super::native("deep", Carried::default(), vec![Carried::default()]).is_none());
    }
}
