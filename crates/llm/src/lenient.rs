//! JSON of foreign servers, read member by member: one that is odd counts as absent and hurts no other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::wire_text::WireText;

/// The members of a JSON object. A member that is null counts as absent.
#[derive(Debug, Default, Clone, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Members(BTreeMap<String, Box<RawValue>>);

impl Members {
    /// Parses an object.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn read(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// The members of an object; none for any other value.
    pub(super) fn of(raw: &RawValue) -> Self {
        Self::read(raw.get().as_bytes()).unwrap_or_default()
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Box<RawValue>> {
        self.0.remove(name).filter(|raw| raw.get() != "null")
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|raw| raw.get() != "null")
    }

    /// True if the member is this string, which needs no escape.
    pub(super) fn is(&self, name: &str, text: &str) -> bool {
        let quoted = |raw: &str| raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')) == Some(text);
        self.0.get(name).is_some_and(|raw| quoted(raw.get()))
    }

    /// A string that is not empty.
    pub(super) fn word(&mut self, name: &str) -> Option<String> {
        let text: WireText = serde_json::from_str(self.take(name)?.get()).ok()?;
        Some(text.into_prose()).filter(|text| !text.is_empty())
    }

    /// A string that is not empty, or the digits of a number.
    pub(super) fn id(&mut self, name: &str) -> Option<String> {
        let raw = self.take(name)?;
        if raw.get().starts_with(|first: char| first.is_ascii_digit()) {
            return Some(raw.get().to_owned());
        }
        self.0.insert(name.to_owned(), raw);
        self.word(name)
    }

    /// Text: a string, or the JSON of any other value.
    ///
    /// # Errors
    /// The string breaks the rules of JSON.
    pub(super) fn text(&mut self, name: &str) -> serde_json::Result<WireText> {
        self.take(name).map_or(Ok(WireText::default()), |raw| WireText::of_value(&raw))
    }

    /// A count. Servers also write it as `10.0` or as a string.
    pub(super) fn count(&mut self, name: &str) -> Option<u64> {
        let raw = self.take(name)?;
        let text = raw.get().trim_matches('"');
        text.parse().ok().or_else(|| {
            let float: f64 = text.parse().ok()?;
            (float.is_finite() && float >= 0.0).then_some(float as u64)
        })
    }

    pub(super) fn object(&mut self, name: &str) -> Self {
        self.take(name).map(|raw| Self::of(&raw)).unwrap_or_default()
    }

    /// The items of a list; none for any other value.
    pub(super) fn list(&mut self, name: &str) -> Vec<Box<RawValue>> {
        self.take(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }

    /// Without the members that say nothing.
    pub(super) fn said(mut self) -> Self {
        self.0.retain(|_, raw| !matches!(raw.get(), "null" | r#""""# | "[]" | "{}"));
        self
    }

    /// The first item of a list whose text names `error`; most do not, and are not parsed for it.
    pub(super) fn first_with_error(&self, name: &str) -> Option<Box<RawValue>> {
        let raw = self.0.get(name).filter(|raw| raw.get().contains(r#""error""#))?;
        serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()).ok()?.into_iter().next()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, name: &str, raw: Box<RawValue>) {
        self.0.insert(name.to_owned(), raw);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, raw)| (name.as_str(), &**raw))
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (String, Box<RawValue>)> {
        self.0.into_iter()
    }
}

impl FromIterator<(String, Box<RawValue>)> for Members {
    fn from_iter<T: IntoIterator<Item = (String, Box<RawValue>)>>(members: T) -> Self {
        Self(members.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_member_counts_as_absent() {
        let read = || {
            Members::read(
                br#"{"a": 10.0, "b": "7", "c": -1, "d": [1], "e": null, "f": 1e3, "g": "\ud83d", "h": 8, "i": ""}"#,
            )
            .unwrap()
        };
        let mut all = read();
        let counts = ["a", "b", "c", "d", "e", "f", "x"].map(|name| all.count(name));
        assert_eq!(counts, [Some(10), Some(7), None, None, None, Some(1_000), None]);
        let mut all = read();
        let words = ["b", "d", "g", "h", "i"].map(|name| all.word(name));
        assert_eq!(words, [Some("7".into()), None, Some("\u{fffd}".into()), None, None]);
        let mut all = read();
        assert_eq!((all.id("h").as_deref(), all.id("b").as_deref(), all.id("d")), (Some("8"), Some("7"), None));
        let mut all = read();
        assert_eq!((all.list("d").len(), all.list("a").len(), all.object("b").is_empty()), (1, 0, true));
        assert!(!read().has("e") && read().has("a") && read().is("b", "7") && !read().is("h", "8"));
    }
}
