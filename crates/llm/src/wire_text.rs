//! Text from the wire, which may hold what JSON allows and a Rust string does not: lone surrogates.
//!
//! Servers that split output by UTF-16 units send the halves of one emoji in two deltas, and models write lone
//! surrogates. The bytes are collected as WTF-8, in which two halves can be joined. A surrogate that stays
//! alone becomes U+FFFD in prose; in arguments, which are JSON text, it becomes its escape again.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use serde_json::value::RawValue;

/// A JSON string that may hold lone surrogates.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct WireText(Vec<u8>);

impl<'de> Deserialize<'de> for WireText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = WireText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<WireText, E> {
                Ok(WireText(bytes.to_vec()))
            }
        }
        // serde_json passes a string as bytes to a visitor without checking its surrogates.
        deserializer.deserialize_bytes(Bytes)
    }
}

impl WireText {
    /// The text of a JSON value expected to be a string: a string's content, nothing for null, the JSON text of
    /// any other value.
    pub(super) fn of_value(raw: &RawValue) -> serde_json::Result<Self> {
        match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw.get()),
            _ if raw.get() == "null" => Ok(Self::default()),
            _ => Ok(Self(raw.get().as_bytes().to_vec())),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn append(&mut self, more: &Self) {
        self.0.extend_from_slice(&more.0);
    }

    /// Takes the text that can be shown: all but a high surrogate at the end, whose other half may follow.
    pub(super) fn take_settled(&mut self) -> String {
        let settled = match self.0.last_chunk::<3>() {
            Some(last) if surrogate(last).is_some_and(is_high) => self.0.len() - 3,
            _ => self.0.len(),
        };
        let rest = self.0.split_off(settled);
        Self(std::mem::replace(&mut self.0, rest)).into_prose()
    }

    /// Converts to prose: lone surrogates become U+FFFD.
    pub(super) fn into_prose(self) -> String {
        self.into_string(|_unit, text| text.push(char::REPLACEMENT_CHARACTER))
    }

    /// Converts to JSON text: lone surrogates become escapes, the only form that JSON allows.
    pub(super) fn into_json_text(self) -> String {
        self.into_string(|unit, text| text.push_str(&format!("\\u{unit:04x}")))
    }

    fn into_string(self, lone: impl Fn(u16, &mut String)) -> String {
        let bytes = match String::from_utf8(self.0) {
            Ok(text) => return text,
            Err(not_utf8) => not_utf8.into_bytes(),
        };
        let mut text = String::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (valid, after) = match std::str::from_utf8(rest) {
                Ok(all) => (all, &[][..]),
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    (std::str::from_utf8(valid).unwrap_or_default(), after)
                }
            };
            text.push_str(valid);
            rest = after;
            let Some(first) = rest.first_chunk::<3>().and_then(surrogate) else {
                // Not WTF-8. Replace one byte so that the loop ends.
                if !rest.is_empty() {
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[1..];
                }
                continue;
            };
            rest = &rest[3..];
            let second = rest.first_chunk::<3>().and_then(surrogate);
            match (is_high(first), second) {
                (true, Some(second)) if !is_high(second) => {
                    text.extend(char::decode_utf16([first, second]).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
                    rest = &rest[3..];
                }
                _ => lone(first, &mut text),
            }
        }
        text
    }
}

/// The UTF-16 unit encoded by three bytes of WTF-8, if it is a surrogate.
fn surrogate(bytes: &[u8; 3]) -> Option<u16> {
    match bytes {
        [0xED, middle @ 0xA0..=0xBF, last @ 0x80..=0xBF] => {
            Some(0xD000 | (u16::from(middle & 0x3F) << 6) | u16::from(last & 0x3F))
        }
        _ => None,
    }
}

fn is_high(unit: u16) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(json: &str) -> WireText {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn surrogates_join_across_deltas_or_stay_alone() {
        let mut text = wire(r#""a\ud83d""#);
        assert_eq!(text.take_settled(), "a");
        text.append(&wire(r#""\ude00b""#));
        assert_eq!(text.take_settled(), "😀b");
        assert!(text.is_empty());
        for lone in [r#""x\ud83dy""#, r#""x\ude00y""#] {
            assert_eq!(wire(lone).into_prose(), "x\u{fffd}y");
        }
        assert_eq!(wire(r#""x\ud83dy\ude00""#).into_json_text(), r"x\ud83dy\ude00");
        assert_eq!(wire(r#""\ud83d\ud83d\ude00""#).into_json_text(), "\\ud83d😀");
        assert_eq!(wire(r#""é😀""#).into_prose(), "é😀");
    }
}
