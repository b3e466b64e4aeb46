//! Paths into the data that calls share, such as `†state.user.name`.
//!
//! A path has one canonical text. Index segments can be read but not written: two calls that push concurrently
//! would count from different starting points.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::syntax::{Cursor, DAGGER, SyntaxError};

/// Maximum segments of one path; more than any document that a model reads is deep.
const MAX_SEGMENTS: usize = 32;

/// Root of a path: the document that it reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Scratchpad of the run, written by its calls.
    State,
    /// Input of the execution. Read-only.
    Input,
    /// Values that are results and not working notes; written like the state.
    Data,
    /// Results of finished calls by call id. Read-only.
    Calls,
    /// Arguments of the call that a policy is evaluated for. Not in [`Kind::ALL`]: no call can read it.
    Arguments,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::State, Self::Input, Self::Data, Self::Calls];

    /// The name after the `†`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Input => "input",
            Self::Data => "data",
            Self::Calls => "calls",
            Self::Arguments => "arguments",
        }
    }

    /// True if calls may write to paths of this kind.
    pub(crate) fn is_writable(self) -> bool {
        match self {
            Self::State | Self::Data => true,
            Self::Input | Self::Calls | Self::Arguments => false,
        }
    }
}

/// A location in the data that calls share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    pub kind: Kind,
    pub(crate) segments: Vec<String>,
}

impl Path {
    /// True if one path is a prefix of the other, so that a write at one is visible at the other.
    pub fn is_above_or_below(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// True if `other` is this path or below it.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.kind == other.kind && other.segments.starts_with(&self.segments)
    }

    /// True if the path holds a person's decision. The model cannot write it.
    pub fn is_approval(&self) -> bool {
        self.kind == Kind::State && self.segments.first().is_some_and(|first| first == "approvals")
    }

    /// Checks that a call may write to this path.
    ///
    /// # Errors
    /// With the reason, as a message for the model.
    pub(crate) fn check_writable(&self) -> Result<(), String> {
        if !self.kind.is_writable() {
            return Err(format!("{self} cannot be written; write below {DAGGER}state or {DAGGER}data"));
        }
        if self.is_approval() {
            return Err(format!("{self} cannot be written: approvals are given by people"));
        }
        if self.segments.is_empty() {
            return Err(format!("{self} cannot be written as a whole; name a place below it"));
        }
        if let Some(index) = self.segments.iter().find(|segment| is_index(segment)) {
            let hint = "write the list, or use the method `push`";
            return Err(format!("{self} cannot be written: `{index}` is a place in a list; {hint}"));
        }
        Ok(())
    }

    /// Value at this path in `root`, the document of its kind. A written null is a value.
    pub fn find<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        find(root, &self.segments)
    }

    /// Reads a path at the cursor. If `is_bare`, the dagger is optional.
    pub(super) fn read(cursor: &mut Cursor<'_>, is_bare: bool) -> Result<Self, SyntaxError> {
        let has_dagger = cursor.take("†");
        if !has_dagger && !is_bare {
            let found = cursor.found();
            return Err(cursor.error(format!("expected a reference, which begins with {DAGGER}, found {found}")));
        }
        let start = cursor.clone();
        let name = cursor.take_while(is_plain);
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.as_str() == name) else {
            return Err(start.error(format!("unknown kind `{name}`: a reference begins with {}", kinds())));
        };
        Self::read_below(kind, cursor)
    }

    /// Reads a path such as `arguments.amount` if one starts at the cursor. Only conditions of policies contain
    /// them.
    pub(super) fn read_argument(cursor: &mut Cursor<'_>) -> Result<Option<Self>, SyntaxError> {
        let mut after = cursor.clone();
        if after.take_while(is_plain) != Kind::Arguments.as_str() {
            return Ok(None);
        }
        *cursor = after;
        Self::read_below(Kind::Arguments, cursor).map(Some)
    }

    fn read_below(kind: Kind, cursor: &mut Cursor<'_>) -> Result<Self, SyntaxError> {
        let mut segments = Vec::new();
        loop {
            let before = cursor.clone();
            if cursor.take(".") {
                let segment = cursor.take_while(is_plain);
                if segment.is_empty() {
                    return Err(cursor.error(format!("expected a name after `.`, found {}", cursor.found())));
                }
                segments.push(segment.to_owned());
            } else if cursor.take("[") {
                segments.push(bracketed(cursor)?);
            } else {
                return Ok(Self { kind, segments });
            }
            if segments.len() > MAX_SEGMENTS {
                return Err(before.error(format!("a path may have {MAX_SEGMENTS} parts")));
            }
        }
    }
}

/// Value at `segments` below `value`.
pub(super) fn find<'a>(value: &'a Value, segments: &[String]) -> Option<&'a Value> {
    segments.iter().try_fold(value, |value, segment| match value {
        Value::Object(members) => members.get(segment),
        Value::Array(items) if is_index(segment) => items.get(segment.parse::<usize>().ok()?),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Reads `0]` or `"any name"]`, after the opening bracket.
fn bracketed(cursor: &mut Cursor<'_>) -> Result<String, SyntaxError> {
    let digits = cursor.take_while(|c| c.is_ascii_digit());
    let segment = if digits.is_empty() { cursor.quoted()? } else { digits.to_owned() };
    if cursor.take("]") { Ok(segment) } else { Err(cursor.error(format!("expected `]`, found {}", cursor.found()))) }
}

/// True for a character of an unquoted name. Call ids contain `-`, `_` and `:`.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '$' | '@')
}

fn is_index(segment: &str) -> bool {
    !segment.is_empty() && segment.chars().all(|c| c.is_ascii_digit())
}

fn kinds() -> String {
    Kind::ALL.map(|kind| format!("{DAGGER}{}", kind.as_str())).join(", ")
}

impl FromStr for Path {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let mut cursor = Cursor::new(text)?;
        let path = Self::read(&mut cursor, false)?;
        if cursor.is_at_end() { Ok(path) } else { Err(cursor.error(format!("unexpected {}", cursor.found()))) }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DAGGER}{}", self.kind.as_str())?;
        for segment in &self.segments {
            if !segment.is_empty() && segment.chars().all(is_plain) {
                write!(f, ".{segment}")?;
            } else {
                write!(f, "[{}]", Value::String(segment.clone()))?;
            }
        }
        Ok(())
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn a_path_has_one_canonical_text() {
        for (written, canonical) in [
            ("†state.user.name", "†state.user.name"),
            ("†state", "†state"),
            ("†state.items[0].name", "†state.items.0.name"),
            (r#"†calls["functions.search:0"]"#, r#"†calls["functions.search:0"]"#),
            ("†calls['call_1']", "†calls.call_1"),
            ("†data.größe.①", "†data.größe.①"),
            (r#"†state[""]["a\"b"]"#, r#"†state[""]["a\"b"]"#),
        ] {
            assert_eq!(path(written).to_string(), canonical);
            assert_eq!(path(canonical), path(written));
        }
    }

    #[test]
    fn unparsable_path_names_reason_and_position() {
        for (text, reason) in [
            ("state.a", "expected a reference, which begins with †, found `s` (at character 1"),
            ("†stat.a", "unknown kind `stat`: a reference begins with †state, †input, †data, †calls (at character 2"),
            ("†state.", "expected a name after `.`, found the end"),
            ("†state..a", "expected a name after `.`, found `.`"),
            ("†state.a b", "unexpected ` ` (at character 9"),
            ("†state[x]", "expected a quoted text, found `x`"),
            ("†state[\"x]", "the quoted text does not end"),
            ("†state[0", "expected `]`, found the end"),
        ] {
            let error = text.parse::<Path>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let deep = format!("†state{}", ".a".repeat(33));
        assert!(deep.parse::<Path>().unwrap_err().to_string().contains("a path may have 32 parts"));
    }

    #[test]
    fn paths_overlap_by_whole_segments_of_one_kind() {
        for (a, b, related) in [
            ("†state.a", "†state.a", true),
            ("†state.a", "†state.a.b", true),
            ("†state.a.b", "†state", true),
            ("†state.a", "†state.ab", false),
            ("†state.a.b", "†state.a.c", false),
            ("†state.a", "†data.a", false),
        ] {
            assert_eq!(path(a).is_above_or_below(&path(b)), related, "{a} {b}");
            assert_eq!(path(b).is_above_or_below(&path(a)), related, "{b} {a}");
        }
    }

    #[test]
    fn only_state_and_data_except_approvals_are_writable() {
        for writable in ["†state.a", "†data.a.b", "†state.user.approvals", "†data.approvals"] {
            assert_eq!(path(writable).check_writable(), Ok(()), "{writable}");
        }
        for (refused, reason) in [
            ("†input.a", "cannot be written; write below †state or †data"),
            ("†calls.a", "cannot be written; write below"),
            ("†state", "as a whole"),
            ("†state.approvals", "approvals are given by people"),
            ("†state.approvals.refund", "approvals are given by people"),
            (r#"†state["approvals"].refund"#, "approvals are given by people"),
            ("†state.items.0", "`0` is a place in a list"),
        ] {
            let error = path(refused).check_writable().unwrap_err();
            assert!(error.contains(reason), "{refused}: {error}");
        }
    }

    #[test]
    fn member_and_index_find_values_including_null() {
        let root = json!({"a": [{"b": null}], "0": "member"});
        let find = |text: &str| path(text).find(&root).cloned();
        assert_eq!(find("†state.a[0].b"), Some(json!(null)));
        assert_eq!(find("†state.0"), Some(json!("member")));
        assert_eq!(find("†state.a.1"), None);
        assert_eq!(find("†state.a.b"), None);
        assert_eq!(find("†state.a.0.b.c"), None);
        assert_eq!(find("†state"), Some(root.clone()));
    }
}
