//! JSON as the contract writes it to a model: compact, keys sorted, nothing but ASCII.

use std::io;

use serde::Serialize;
use serde_json::{Value, ser::Formatter};

/// Escapes what is not printable ASCII, in UTF-16 units.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|c: char| !c.is_ascii() || c == '\u{7f}') {
            let (plain, after) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut chars = after.chars();
            for unit in chars.next().iter().flat_map(|c| c.encode_utf16(&mut [0; 2]).to_vec()) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// The text of a value. Maps of values are sorted by themselves.
pub(super) fn ascii(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Ascii);
    // Writing a value into memory cannot fail, and what is written is ASCII.
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_compact_sorted_and_ascii() {
        let value = json!({"z": "é\n\"\u{7f}", "a": [1, 1.0, null, "😀"], "Ω": true});
        let expected = "{\"a\":[1,1.0,null,\"\\ud83d\\ude00\"],\"z\":\"\\u00e9\\n\\\"\\u007f\",\"\\u03a9\":true}";
        assert_eq!(ascii(&value), expected);
        assert_eq!(serde_json::from_str::<Value>(&ascii(&value)).unwrap(), value);
    }
}
