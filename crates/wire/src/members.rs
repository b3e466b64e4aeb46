//! Reading the JSON of a request: each wrong member is refused by its name.

use longhaul_sdk::numbers;
use serde_json::{Map, Value};

use crate::{Fault, FaultKind};

/// Bytes of a model's name.
pub(crate) const MODEL_BYTES: usize = 256;
/// Pairs of `metadata`.
pub(crate) const METADATA_PAIRS: usize = 16;
/// Characters of a name in `metadata`.
pub(crate) const METADATA_NAME: usize = 64;
/// Characters of a text in `metadata`.
pub(crate) const METADATA_TEXT: usize = 512;

/// Entries of a conversation.
pub(crate) const MAX_MESSAGES: usize = 2_000;
/// Tools of a request.
pub(crate) const MAX_TOOLS: usize = 128;
/// Parts of a message.
pub(crate) const MAX_PARTS: usize = 100;

/// Parses a body.
///
/// # Errors
/// It is not JSON, or holds what no part of the record can: the character NUL, or a number of endless length.
pub(crate) fn body(bytes: &[u8]) -> Result<Value, Fault> {
    let body = serde_json::from_slice(bytes).map_err(|error| general(format!("The body is not JSON: {error}")))?;
    if holds_nul(&body) {
        return Err(general("The body holds the character NUL (U+0000); leave it out.".into()));
    }
    numbers::check(&body).map_err(|oversized| Fault::invalid(param(&oversized.path), oversized.to_string()))?;
    Ok(body)
}

/// A fault of the whole body.
pub(crate) fn general(message: String) -> Fault {
    Fault { kind: FaultKind::Invalid, message, param: None, code: None }
}

/// True if a text or a name within the value holds the character NUL, which Postgres does not store.
pub(crate) fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(holds_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || holds_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A value of a request and its place.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    pub(crate) value: &'a Value,
    /// JSON Pointer.
    pub(crate) at: String,
}

/// An object of a request. A member that is null counts as absent.
#[derive(Debug, Clone)]
pub(crate) struct Members<'a> {
    map: &'a Map<String, Value>,
    /// JSON Pointer.
    pub(crate) at: String,
}

/// The place of a JSON Pointer as errors name it: `/messages/0/content` is `messages[0].content`.
pub(crate) fn param(pointer: &str) -> String {
    let mut param = String::new();
    for token in pointer.split('/').skip(1) {
        let is_index = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
        match (is_index, param.is_empty()) {
            (true, _) => param.push_str(&format!("[{token}]")),
            (false, true) => param.push_str(token),
            (false, false) => param.push_str(&format!(".{token}")),
        }
    }
    param
}

impl<'a> Node<'a> {
    pub(crate) fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::invalid(param(&self.at), message)
    }

    pub(crate) fn unsupported(&self, message: impl Into<String>) -> Fault {
        Fault::unsupported(param(&self.at), message)
    }

    pub(crate) fn members(&self) -> Result<Members<'a>, Fault> {
        let map = self.value.as_object().ok_or_else(|| self.fault("This must be an object."))?;
        Ok(Members { map, at: self.at.clone() })
    }

    pub(crate) fn text(&self) -> Result<&'a str, Fault> {
        self.value.as_str().ok_or_else(|| self.fault("This must be a string."))
    }

    /// The entries of a list of at most `most`.
    pub(crate) fn entries(&self, most: usize) -> Result<Vec<Node<'a>>, Fault> {
        let values = self.value.as_array().ok_or_else(|| self.fault("This must be an array."))?;
        if values.len() > most {
            return Err(self.fault(format!("This array has {} entries; at most {most} are allowed.", values.len())));
        }
        Ok(values.iter().enumerate().map(|(n, value)| Node { value, at: format!("{}/{n}", self.at) }).collect())
    }
}

impl<'a> Members<'a> {
    pub(crate) fn of(body: &'a Value) -> Result<Self, Fault> {
        let map = body.as_object().ok_or_else(|| general("The body must be a JSON object.".into()))?;
        Ok(Self { map, at: String::new() })
    }

    pub(crate) fn get(&self, name: &str) -> Option<Node<'a>> {
        let value = self.map.get(name).filter(|value| !value.is_null())?;
        Some(Node { value, at: format!("{}/{name}", self.at) })
    }

    pub(crate) fn need(&self, name: &str) -> Result<Node<'a>, Fault> {
        self.get(name).ok_or_else(|| self.fault(name, format!("The member {name:?} is required.")))
    }

    /// A fault of the member, which may be absent.
    pub(crate) fn fault(&self, name: &str, message: impl Into<String>) -> Fault {
        Fault::invalid(param(&format!("{}/{name}", self.at)), message)
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, Fault> {
        self.get(name).map(|node| node.text()).transpose()
    }

    pub(crate) fn need_text(&self, name: &str) -> Result<&'a str, Fault> {
        self.need(name)?.text()
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Fault> {
        let read = |node: Node<'_>| node.value.as_bool().ok_or_else(|| node.fault("This must be true or false."));
        self.get(name).map(read).transpose()
    }

    /// A number from 0 to `most`.
    pub(crate) fn number(&self, name: &str, most: f64) -> Result<Option<f64>, Fault> {
        let Some(node) = self.get(name) else { return Ok(None) };
        match node.value.as_f64().filter(|number| (0.0..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(node.fault(format!("This must be a number from 0 to {most}."))),
        }
    }

    /// An integer of at least 1.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u32>, Fault> {
        let Some(node) = self.get(name) else { return Ok(None) };
        match node.value.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0) {
            Some(count) => Ok(Some(count)),
            None => Err(node.fault("This must be an integer of at least 1.")),
        }
    }

    pub(crate) fn members(&self, name: &str) -> Result<Option<Members<'a>>, Fault> {
        self.get(name).map(|node| node.members()).transpose()
    }

    /// The entries of a list of at most `most`; none if it is absent.
    pub(crate) fn entries(&self, name: &str, most: usize) -> Result<Vec<Node<'a>>, Fault> {
        self.get(name).map_or_else(|| Ok(Vec::new()), |node| node.entries(most))
    }
}

/// The member `model`.
pub(crate) fn model(body: &Members<'_>) -> Result<String, Fault> {
    let model = body.need_text("model")?;
    if model.trim().is_empty() || model.len() > MODEL_BYTES {
        return Err(body.fault("model", format!("The name of a model has 1 to {MODEL_BYTES} bytes.")));
    }
    Ok(model.to_owned())
}

/// The member `metadata`: texts by name.
pub(crate) fn metadata(body: &Members<'_>) -> Result<std::collections::BTreeMap<String, String>, Fault> {
    let Some(given) = body.members("metadata")? else { return Ok(std::collections::BTreeMap::new()) };
    if given.map.len() > METADATA_PAIRS {
        return Err(body.fault("metadata", format!("At most {METADATA_PAIRS} pairs are allowed.")));
    }
    let read = |(name, value): (&String, &Value)| {
        let text = value.as_str().filter(|text| text.chars().count() <= METADATA_TEXT);
        match text.filter(|_| name.chars().count() <= METADATA_NAME) {
            Some(text) => Ok((name.clone(), text.to_owned())),
            None => Err(body.fault(
                "metadata",
                format!("Names have up to {METADATA_NAME} characters; values are strings of up to {METADATA_TEXT}."),
            )),
        }
    };
    given.map.iter().filter(|(_, value)| !value.is_null()).map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_named_like_members() {
        assert_eq!(param("/messages/0/content/12/image_url"), "messages[0].content[12].image_url");
        assert_eq!(param("/model"), "model");
        assert_eq!(param(""), "");
    }

    #[test]
    fn nul_is_refused_anywhere() {
        for text in [r#"{"a":"\u0000"}"#, r#"{"\u0000":1}"#, r#"[{"a":["x\u0000"]}]"#] {
            assert!(body(text.as_bytes()).unwrap_err().message.contains("NUL"), "{text}");
        }
        assert!(body(br#"{"a":"\\u0000"}"#).is_ok());
    }

    #[test]
    fn metadata_is_bounded() {
        let read = |value: Value| {
            let body = json!({ "metadata": value });
            metadata(&Members::of(&body).unwrap()).is_ok()
        };
        assert!(read(json!({ "a": "b" })) && read(json!({})) && read(json!(null)));
        assert!(!read(json!({ "a": 1 })) && !read(json!([])) && !read(json!({ "a": "x".repeat(513) })));
        assert!(!read(json!({ "n".repeat(65): "b" })));
        assert!(!read((0..17).map(|n| (n.to_string(), json!("x"))).collect::<Map<_, _>>().into()));
    }
}
