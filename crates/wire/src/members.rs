//! Reading the JSON of a request: each wrong member is refused by its name, with what to send instead.

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive};

use longhaul_sdk::{json_pointer, numbers};
use serde_json::{Map, Value};

use crate::{Fault, FaultKind, fault::brief};

/// Bytes of a model's name.
const MODEL_BYTES: usize = 256;
/// Pairs of `metadata`.
const METADATA_PAIRS: usize = 16;
/// Characters of a name in `metadata`.
const METADATA_NAME: usize = 64;
/// Characters of a text in `metadata`.
const METADATA_TEXT: usize = 512;

/// Entries of a conversation.
pub(crate) const MAX_MESSAGES: usize = 2_000;
/// Tools of a request.
pub(crate) const MAX_TOOLS: usize = 128;
/// Parts of a message.
pub(crate) const MAX_PARTS: usize = 100;
/// Characters of an id that a client chose, and of the name in a call.
pub(crate) const MAX_ID: usize = 256;
/// Characters of a text that is only repeated or passed on, such as `user`.
pub(crate) const MAX_LABEL: usize = 512;

/// Parses a body.
///
/// # Errors
/// It is no JSON object, or holds what no part of the record can: the character NUL, which Postgres does not store, or
/// a number of endless length.
pub(crate) fn body(bytes: &[u8]) -> Result<Map<String, Value>, Fault> {
    let body = match serde_json::from_slice(bytes) {
        Ok(Value::Object(body)) => body,
        Ok(other) => return Err(Node { value: &other, at: String::new() }.wrong("an object")),
        Err(error) => {
            let fault = general(format!("The body is not JSON: {error}."));
            return Err(Fault { code: Some("invalid_json".into()), ..fault });
        }
    };
    for (name, value) in &body {
        if name.contains('\0') || holds_nul(value) {
            let message = "holds the character NUL (U+0000): leave it out.";
            return Err(named(brief(&name.replace('\0', "")), message));
        }
        if let Err(oversized) = numbers::check(value) {
            let pointer = format!("/{}{}", json_pointer::token(name), oversized.path);
            return Err(named(brief(&param(&pointer)), format!("is refused: {oversized}.")));
        }
    }
    Ok(body)
}

/// A fault of the whole body.
pub(crate) fn general(message: String) -> Fault {
    Fault { kind: FaultKind::Invalid, message, param: None, code: None }
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(holds_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || holds_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A fault whose message has the member as its subject.
fn named(param: &str, predicate: impl Display) -> Fault {
    match param {
        "" => general(format!("The body {predicate}")),
        param => Fault::invalid(param, format!("`{param}` {predicate}")),
    }
}

fn missing(at: &str) -> Fault {
    let param = param(at);
    let message = format!("Missing required parameter: `{param}`.");
    Fault { code: Some("missing_required_parameter".into()), ..Fault::invalid(param, message) }
}

/// The place of a JSON Pointer as errors name it: `/messages/0/content` is `messages[0].content`.
fn param(pointer: &str) -> String {
    let mut param = String::new();
    for token in pointer.split('/').skip(1) {
        let is_index = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
        let name = json_pointer::name(token);
        match (is_index, param.is_empty()) {
            (true, _) => param.push_str(&format!("[{name}]")),
            (false, true) => param.push_str(&name),
            (false, false) => param.push_str(&format!(".{name}")),
        }
    }
    param
}

/// A value of a request and its place.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    pub(crate) value: &'a Value,
    /// JSON Pointer.
    pub(crate) at: String,
}

impl<'a> Node<'a> {
    /// A fault of the value. The predicate says what it must be; the message names the value before it.
    pub(crate) fn fault(&self, predicate: impl Display) -> Fault {
        named(&param(&self.at), predicate)
    }

    /// A fault of a value that is of another type or out of its range.
    pub(crate) fn wrong(&self, expected: &str) -> Fault {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(number) => brief(number.as_str()),
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        let fault = self.fault(format!("must be {expected}, not {found}."));
        Fault { code: Some("invalid_type".into()), ..fault }
    }

    /// The refusal of a value that has no meaning here, with what to send in its place.
    pub(crate) fn unsupported(&self, instead: &str) -> Fault {
        let param = param(&self.at);
        let message = match self.value {
            Value::String(text) => format!("`{param}` is `{}`, which is not supported: {instead}", brief(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                format!("`{param}` is not supported: {instead}")
            }
        };
        Fault::unsupported(param, message)
    }

    pub(crate) fn members(&self) -> Result<Members<'a>, Fault> {
        let map = self.value.as_object().ok_or_else(|| self.wrong("an object"))?;
        Ok(Members { map, at: self.at.clone() })
    }

    pub(crate) fn text(&self) -> Result<&'a str, Fault> {
        self.value.as_str().ok_or_else(|| self.wrong("a string"))
    }

    /// A text of at most `most` characters.
    pub(crate) fn bounded(&self, most: usize) -> Result<&'a str, Fault> {
        let text = self.text()?;
        match text.chars().nth(most) {
            None => Ok(text),
            Some(_) => Err(self.fault(format!("is too long: send at most {most} characters."))),
        }
    }

    /// A text of 1 to [`MAX_ID`] characters.
    pub(crate) fn id(&self) -> Result<&'a str, Fault> {
        match self.bounded(MAX_ID)? {
            "" => Err(missing(&self.at)),
            id => Ok(id),
        }
    }

    /// One of the texts of `known`.
    pub(crate) fn one_of(&self, known: &[&'static str]) -> Result<&'static str, Fault> {
        let text = self.text()?;
        let found = known.iter().find(|one| **one == text).copied();
        found.ok_or_else(|| self.fault(format!("is `{}`: send one of `{}`.", brief(text), known.join("`, `"))))
    }

    pub(crate) fn flag(&self) -> Result<bool, Fault> {
        self.value.as_bool().ok_or_else(|| self.wrong("a boolean"))
    }

    pub(crate) fn number(&self, range: RangeInclusive<f64>) -> Result<f64, Fault> {
        let number = self.value.as_f64().filter(|number| range.contains(number));
        number.ok_or_else(|| self.wrong(&format!("a number from {} to {}", range.start(), range.end())))
    }

    /// An integer of at least `least`.
    pub(crate) fn count(&self, least: u32) -> Result<u32, Fault> {
        let count = self.value.as_u64().and_then(|count| u32::try_from(count).ok());
        let expected = || format!("an integer from {least} to {}", u32::MAX);
        count.filter(|count| *count >= least).ok_or_else(|| self.wrong(&expected()))
    }

    /// The entries of a list of at most `most`.
    pub(crate) fn entries(&self, most: usize) -> Result<Vec<Node<'a>>, Fault> {
        let values = self.value.as_array().ok_or_else(|| self.wrong("an array"))?;
        if values.len() > most {
            return Err(self.fault(format!("has {} entries: send at most {most}.", values.len())));
        }
        Ok(values.iter().enumerate().map(|(n, value)| Node { value, at: format!("{}/{n}", self.at) }).collect())
    }
}

/// An object of a request. A member that is null counts as absent.
#[derive(Debug, Clone)]
pub(crate) struct Members<'a> {
    pub(crate) map: &'a Map<String, Value>,
    /// JSON Pointer.
    at: String,
}

impl<'a> Members<'a> {
    pub(crate) fn of(body: &'a Map<String, Value>) -> Self {
        Self { map: body, at: String::new() }
    }

    fn pointer(&self, name: &str) -> String {
        format!("{}/{}", self.at, json_pointer::token(name))
    }

    /// The place of a member, which may be absent, as errors name it.
    pub(crate) fn param(&self, name: &str) -> String {
        param(&self.pointer(name))
    }

    /// A fault of a member, which may be absent. The predicate says what it must be.
    pub(crate) fn fault(&self, name: &str, predicate: impl Display) -> Fault {
        named(&self.param(name), predicate)
    }

    pub(crate) fn missing(&self, name: &str) -> Fault {
        missing(&self.pointer(name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Node<'a>> {
        let value = self.map.get(name).filter(|value| !value.is_null())?;
        Some(Node { value, at: self.pointer(name) })
    }

    pub(crate) fn need(&self, name: &str) -> Result<Node<'a>, Fault> {
        self.get(name).ok_or_else(|| self.missing(name))
    }

    /// A member as `read` takes it; `None` if it is absent.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(Node<'a>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.get(name).map(read).transpose()
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, Fault> {
        self.read(name, |node| node.text())
    }

    pub(crate) fn need_text(&self, name: &str) -> Result<&'a str, Fault> {
        self.need(name)?.text()
    }

    pub(crate) fn bounded(&self, name: &str, most: usize) -> Result<Option<&'a str>, Fault> {
        self.read(name, |node| node.bounded(most))
    }

    pub(crate) fn need_id(&self, name: &str) -> Result<&'a str, Fault> {
        self.need(name)?.id()
    }

    pub(crate) fn one_of(&self, name: &str, known: &[&'static str]) -> Result<Option<&'static str>, Fault> {
        self.read(name, |node| node.one_of(known))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Fault> {
        self.read(name, |node| node.flag())
    }

    pub(crate) fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Fault> {
        self.read(name, |node| node.number(range))
    }

    pub(crate) fn count(&self, name: &str, least: u32) -> Result<Option<u32>, Fault> {
        self.read(name, |node| node.count(least))
    }

    pub(crate) fn members(&self, name: &str) -> Result<Option<Members<'a>>, Fault> {
        self.read(name, |node| node.members())
    }

    pub(crate) fn need_members(&self, name: &str) -> Result<Members<'a>, Fault> {
        self.need(name)?.members()
    }

    /// The entries of a list of at most `most`; none if it is absent.
    pub(crate) fn entries(&self, name: &str, most: usize) -> Result<Vec<Node<'a>>, Fault> {
        Ok(self.read(name, |node| node.entries(most))?.unwrap_or_default())
    }
}

/// The member `model`. A blank one counts as absent.
pub(crate) fn model(body: &Members<'_>) -> Result<String, Fault> {
    let model = body.need_text("model")?;
    if model.trim().is_empty() {
        return Err(body.missing("model"));
    }
    match model.len() <= MODEL_BYTES {
        true => Ok(model.to_owned()),
        false => Err(body.fault("model", format!("is too long: send at most {MODEL_BYTES} bytes."))),
    }
}

/// The member `metadata`: texts by name.
pub(crate) fn metadata(body: &Members<'_>) -> Result<BTreeMap<String, String>, Fault> {
    let Some(given) = body.members("metadata")? else { return Ok(BTreeMap::new()) };
    if given.map.len() > METADATA_PAIRS {
        let message = format!("has {} pairs: send at most {METADATA_PAIRS}.", given.map.len());
        return Err(body.fault("metadata", message));
    }
    let mut metadata = BTreeMap::new();
    for name in given.map.keys() {
        if name.chars().nth(METADATA_NAME).is_some() {
            let message = format!("has a name that is too long: send at most {METADATA_NAME} characters.");
            return Err(body.fault("metadata", message));
        }
        if let Some(text) = given.bounded(name, METADATA_TEXT)? {
            metadata.insert(name.clone(), text.to_owned());
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn places_are_named_like_members() {
        assert_eq!(param("/messages/0/content/12/image_url"), "messages[0].content[12].image_url");
        assert_eq!(param("/model"), "model");
        assert_eq!(param("/metadata/a~1b~0c"), "metadata.a/b~c");
        assert_eq!(param(""), "");
    }

    #[test]
    fn nul_is_refused_anywhere() {
        for (text, param) in [
            (r#"{"a":"\u0000"}"#, Some("a")),
            (r#"{"\u0000":1}"#, None),
            (r#"{"a":1,"b":[{"c":["x\u0000"]}]}"#, Some("b")),
            (r#"{"a":{"b\u0000":1}}"#, Some("a")),
        ] {
            let fault = body(text.as_bytes()).unwrap_err();
            assert!(fault.message.contains("NUL"), "{text}");
            assert_eq!(fault.param.as_deref(), param, "{text}");
        }
        assert!(body(br#"{"a":"\\u0000"}"#).is_ok());
    }

    #[test]
    fn bodies_of_other_kinds_are_refused() {
        for text in ["", "{", "\u{feff}{}", "{\"a\": 1"] {
            let fault = body(text.as_bytes()).unwrap_err();
            assert_eq!((fault.code.as_deref(), fault.param), (Some("invalid_json"), None), "{text}");
        }
        for text in ["[]", "1", "1e999", "\"a\"", "null"] {
            let fault = body(text.as_bytes()).unwrap_err();
            assert_eq!((fault.code.as_deref(), fault.param), (Some("invalid_type"), None), "{text}");
        }
        let fault = body(br#"{"tools":[{"a/b":1e999}]}"#).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("tools[0].a/b"));
    }

    #[test]
    fn long_texts_of_callers_are_cut_in_faults() {
        let long = "é".repeat(5_000);
        let nested = format!("{{\"a\":{{\"{long}\":1e999}}}}");
        let (nul, digits) = (format!("{{\"{long}\":\"\\u0000\"}}"), "9".repeat(128));
        for fault in [body(nested.as_bytes()).unwrap_err(), body(nul.as_bytes()).unwrap_err()] {
            assert!(fault.message.len() < 400 && fault.param.unwrap().len() <= 200);
        }
        let body = object(json!({ "a": long, "b": serde_json::from_str::<Value>(&digits).unwrap() }));
        let body = Members::of(&body);
        assert!(body.one_of("a", &["x"]).unwrap_err().message.len() < 300);
        assert!(body.need("a").unwrap().unsupported("Send x.").message.len() < 300);
        assert!(body.count("b", 1).unwrap_err().message.len() < 300);
    }

    #[test]
    fn faults_name_the_member_and_its_bounds() {
        let body = object(json!({ "a": { "n": 3, "t": "xyz", "l": [1, 2], "k": "v", "x": null, "e": "" } }));
        let of = Members::of(&body).need_members("a").unwrap();
        for (fault, message, code) in [
            (
                of.number("n", 0.0..=2.0).unwrap_err(),
                "`a.n` must be a number from 0 to 2, not 3.",
                Some("invalid_type"),
            ),
            (of.flag("t").unwrap_err(), "`a.t` must be a boolean, not a string.", Some("invalid_type")),
            (of.bounded("t", 2).unwrap_err(), "`a.t` is too long: send at most 2 characters.", None),
            (of.entries("l", 1).unwrap_err(), "`a.l` has 2 entries: send at most 1.", None),
            (of.one_of("k", &["a", "b"]).unwrap_err(), "`a.k` is `v`: send one of `a`, `b`.", None),
            (of.need("x").unwrap_err(), "Missing required parameter: `a.x`.", Some("missing_required_parameter")),
            (of.need_id("e").unwrap_err(), "Missing required parameter: `a.e`.", Some("missing_required_parameter")),
            (
                of.need("k").unwrap().unsupported("send x."),
                "`a.k` is `v`, which is not supported: send x.",
                Some("unsupported_parameter"),
            ),
            (
                of.need("l").unwrap().unsupported("send x."),
                "`a.l` is not supported: send x.",
                Some("unsupported_parameter"),
            ),
        ] {
            assert_eq!((fault.message.as_str(), fault.code.as_deref()), (message, code));
        }
        assert_eq!(of.bounded("t", 3).unwrap(), Some("xyz"));
    }

    #[test]
    fn metadata_is_bounded() {
        let read = |value: Value| metadata(&Members::of(&object(json!({ "metadata": value }))));
        let param = |value: Value| read(value).unwrap_err().param.unwrap();
        assert!(read(json!({ "a": "b" })).is_ok() && read(json!({})).is_ok() && read(json!(null)).is_ok());
        assert!(read(json!({ "a": null })).unwrap().is_empty());
        assert_eq!(param(json!([])), "metadata");
        assert_eq!(
            (param(json!({ "a": 1 })), param(json!({ "a": "x".repeat(513) }))),
            ("metadata.a".into(), "metadata.a".into())
        );
        assert_eq!(param(json!({ "n".repeat(65): "b" })), "metadata");
        assert_eq!(param((0..17).map(|n| (n.to_string(), json!("x"))).collect::<Map<_, _>>().into()), "metadata");
    }

    #[test]
    fn name_of_a_model_is_bounded() {
        let read = |value: Value| model(&Members::of(&object(json!({ "model": value }))));
        assert!(read(json!("x".repeat(256))).is_ok());
        assert!(read(json!("x".repeat(257))).unwrap_err().code.is_none());
        for absent in [json!(null), json!(""), json!(" \n")] {
            assert_eq!(read(absent).unwrap_err().code.as_deref(), Some("missing_required_parameter"));
        }
    }
}
