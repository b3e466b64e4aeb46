//! What the model is told of a result that was stored.

use serde_json::Value;

use super::path::Path;
use crate::tools::cut;

/// A stored result up to this length is shown whole.
const SHOWN_WHOLE_BYTES: usize = 2_048;
/// Bytes shown of a longer one: enough to see its form.
const PREVIEW_BYTES: usize = 1_024;

/// The value that a tool's text stands for: JSON where it is JSON, so that types survive, the text itself otherwise.
pub(crate) fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The result of a call that went to `paths`. A large one is a preview: the model passes the reference on instead of copying.
pub(crate) fn stored(text: &str, paths: &[Path]) -> String {
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
    fn a_large_stored_result_is_a_preview_with_its_place() {
        let path: Path = "†state.report".parse().unwrap();
        let long = "é".repeat(2_000);
        let shown = stored(&long, std::slice::from_ref(&path));
        assert!(shown.ends_with("bytes left out]\n[stored at †state.report (4000 bytes)]"), "{shown}");
        assert!(shown.len() < PREVIEW_BYTES + 64, "{}", shown.len());
        assert_eq!(stored("short", &[path]), "short");
        assert_eq!(stored(&long, &[]), long);
    }

    #[test]
    fn a_text_that_is_json_keeps_its_type() {
        assert_eq!(value_of(r#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(value_of("null"), json!(null));
        assert_eq!(value_of("12 apples"), json!("12 apples"));
    }
}
