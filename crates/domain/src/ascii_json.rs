//! JSON as the agent-execution contract writes it: printable ASCII only; for a model also compact, with sorted
//! keys.

use std::fmt::Write;

use serde_json::Value;

/// Escapes every character of a JSON text except printable ASCII, as UTF-16 units. Such characters occur only in
/// strings, so the value stays the same.
#[must_use]
pub fn ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for char in json.chars() {
        if char.is_ascii() && char != '\u{7f}' {
            escaped.push(char);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            // Writing to a `String` cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

/// Serializes a value: compact, keys sorted, ASCII only.
#[must_use]
pub fn sorted_ascii(value: &Value) -> String {
    let mut json = String::new();
    write_sorted(&mut json, value);
    ascii(&json)
}

/// Sorts keys itself, because the order of `serde_json`'s map depends on its build features.
fn write_sorted(json: &mut String, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            json.push('{');
            for (n, key) in keys.into_iter().enumerate() {
                json.push_str(if n > 0 { "," } else { "" });
                json.push_str(&Value::from(key.as_str()).to_string());
                json.push(':');
                write_sorted(json, &fields[key]);
            }
            json.push('}');
        }
        Value::Array(items) => {
            json.push('[');
            for (n, item) in items.iter().enumerate() {
                json.push_str(if n > 0 { "," } else { "" });
                write_sorted(json, item);
            }
            json.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => json.push_str(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_compact_sorted_and_ascii() {
        let value = json!({"z": "é\n\"\u{7f}", "a": [1, 1.0, null, "😀", {"y": 1, "b": 2}], "Ω": true});
        let expected = "{\"a\":[1,1.0,null,\"\\ud83d\\ude00\",{\"b\":2,\"y\":1}],\"z\":\"\\u00e9\\n\\\"\\u007f\",\
            \"\\u03a9\":true}";
        assert_eq!(sorted_ascii(&value), expected);
        assert_eq!(serde_json::from_str::<Value>(&sorted_ascii(&value)).unwrap(), value);
    }
}
