//! The text shown to the model for a result that was stored at a path.

use longhaul_domain::cut;
use longhaul_sdk::numbers;
use serde_json::Value;

use super::path::Path;

/// Maximum bytes of a stored result that is shown whole.
const SHOWN_WHOLE_BYTES: usize = 2_048;
/// Bytes shown of a longer result: enough to see its structure.
const PREVIEW_BYTES: usize = 1_024;

/// The value of a tool's text: the parsed JSON, so that types survive, or the text itself if it is not JSON. A
/// number, `true`, `false` or `null` is parsed only if it serializes to the same text, and a decimal only if it does so
/// as a double, so that no reader loses a part of it: `1e5` and the version `1.10` stay texts.
pub fn value_of(text: &str) -> Value {
    let comes_back = |value: &Value| match value {
        Value::Null | Value::Bool(_) => serde_json::to_string(value).is_ok_and(|back| back == text),
        Value::Number(number) => {
            let is_double = || text.parse::<f64>().is_ok_and(|double| double.to_string() == text);
            number.to_string() == text && (!text.contains('.') || is_double())
        }
        Value::String(_) | Value::Array(_) | Value::Object(_) => true,
    };
    // A number that is too long stays text and is not altered.
    let parsed = serde_json::from_str(text).ok().filter(|value| comes_back(value) && numbers::check(value).is_ok());
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The text shown for a result written to `paths`. A large result is a preview: the model passes on the reference
/// instead of a copy.
pub fn stored(text: &str, paths: &[Path]) -> String {
    if text.len() <= SHOWN_WHOLE_BYTES || paths.is_empty() {
        return text.to_owned();
    }
    let places = paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    format!("{}\n[stored at {places} ({} bytes)]", cut(text, PREVIEW_BYTES), text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn large_stored_result_is_shown_as_preview() {
        let path: Path = "†state.report".parse().unwrap();
        let long = "é".repeat(2_000);
        let shown = stored(&long, std::slice::from_ref(&path));
        assert!(shown.ends_with("bytes left out]\n[stored at †state.report (4000 bytes)]"), "{shown}");
        assert!(shown.len() < PREVIEW_BYTES + 64, "{}", shown.len());
        assert_eq!(stored("short", &[path]), "short");
        assert_eq!(stored(&long, &[]), long);
    }

    #[test]
    fn text_that_is_json_keeps_its_type() {
        assert_eq!(value_of(r#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(value_of(" [1]\n"), json!([1]));
        assert_eq!(value_of("null"), json!(null));
        assert_eq!(value_of("\"a\""), json!("a"));
        for number in ["0", "-7", "12340", "12345678901234567890123", "1.1", "-0.25"] {
            assert!(value_of(number).is_number(), "{number}");
            assert_eq!(value_of(number).to_string(), number);
        }
    }

    #[test]
    fn text_that_json_would_alter_stays_text() {
        let (number, list) = ("9".repeat(129), format!("[{}]", "9".repeat(129)));
        for text in [
            "1.10",
            "0.5000",
            "2.0",
            "0.12345678901234567890",
            "1e5",
            "1E+5",
            "5\n",
            " true",
            "007",
            "12 apples",
            "{broken",
            "",
            &number,
            &list,
        ] {
            assert_eq!(value_of(text), json!(text));
        }
    }
}
