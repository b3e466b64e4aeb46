//! Folds a list of writes into the value at a path.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::path::{Path, find};

/// Write method of `_outputMethod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Replaces the value.
    #[default]
    Set,
    /// Merges objects recursively; any other value is replaced.
    Merge,
    /// Replaces the members of the same name in an object; any other value is replaced.
    Assign,
    /// Appends the value to the list.
    Push,
    /// Concatenates lists or texts.
    Concat,
}

impl Method {
    pub const ALL: [Self; 5] = [Self::Set, Self::Merge, Self::Assign, Self::Push, Self::Concat];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Merge => "merge",
            Self::Assign => "assign",
            Self::Push => "push",
            Self::Concat => "concat",
        }
    }

    /// Returns the value after writing `new` over `old`.
    pub(super) fn apply(self, old: Option<Value>, new: Value) -> Value {
        match (self, old) {
            (Self::Set, _) | (Self::Merge | Self::Assign | Self::Concat, None) => new,
            (Self::Merge, Some(old)) => merge(old, new),
            (Self::Assign, Some(old)) => assign(old, new),
            (Self::Push, old) => {
                let mut items = list(old);
                items.push(new);
                Value::Array(items)
            }
            (Self::Concat, Some(old)) => concat(old, new),
        }
    }
}

/// The items of a list, no items for null or nothing, otherwise the value as the only item.
fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(only) => vec![only],
    }
}

fn merge(old: Value, new: Value) -> Value {
    match (old, new) {
        (Value::Object(mut old), Value::Object(new)) => {
            for (name, new) in new {
                let value = match old.remove(&name) {
                    Some(old) => merge(old, new),
                    None => new,
                };
                old.insert(name, value);
            }
            Value::Object(old)
        }
        (_, new) => new,
    }
}

fn assign(old: Value, new: Value) -> Value {
    match (old, new) {
        (Value::Object(mut old), Value::Object(new)) => {
            old.extend(new);
            Value::Object(old)
        }
        (_, new) => new,
    }
}

fn concat(old: Value, new: Value) -> Value {
    match (old, new) {
        (Value::String(old), Value::String(new)) => Value::String(old + &new),
        (old, new) => Value::Array(list(Some(old)).into_iter().chain(list(Some(new))).collect()),
    }
}

/// The path, method and value of one write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effect<'a> {
    pub(super) path: &'a Path,
    pub(super) method: Method,
    pub(super) value: &'a Value,
}

/// The value at `path` after `writes`, oldest first. Starts from the shortest written path at or above `path`,
/// walks back to the newest `set` that covers it (which hides everything before), and replays from there every
/// write at, above or below it. A write to a part hides nothing else, but it can change the result of a later
/// `push` or `concat` above it.
pub(super) fn fold<'a>(writes: impl Iterator<Item = Effect<'a>>, path: &Path) -> Option<Cow<'a, Value>> {
    let writes: Vec<Effect<'a>> = writes.filter(|write| write.path.kind == path.kind).collect();
    let mut root = path;
    let live = loop {
        let hides = |write: &Effect<'_>| write.method == Method::Set && write.path.covers(root);
        let live = &writes[writes.iter().rposition(hides).unwrap_or_default()..];
        let above = live.iter().map(|write| write.path).filter(|above| above.covers(root));
        match above.min_by_key(|above| above.segments.len()) {
            Some(above) if above.segments.len() < root.segments.len() => root = above,
            Some(_) | None => break live,
        }
    };
    let replayed = live.iter().filter(|write| write.path.is_above_or_below(root));
    // The common case, a single `set`, without a copy of the document.
    if let (Some(only), None) = (replayed.clone().next(), replayed.clone().nth(1))
        && only.method == Method::Set
        && only.path.covers(path)
    {
        return find(only.value, &path.segments[only.path.segments.len()..]).map(Cow::Borrowed);
    }
    let mut document = None;
    replayed.for_each(|write| write_at(&mut document, &write.path.segments, write.method, write.value));
    path.find(document.as_ref()?).cloned().map(Cow::Owned)
}

/// Writes below `at`. A value on the way that is not an object is replaced by one, because the path goes through
/// it.
fn write_at(at: &mut Option<Value>, segments: &[String], method: Method, value: &Value) {
    match segments.split_first() {
        None => *at = Some(method.apply(at.take(), value.clone())),
        Some((first, rest)) => {
            let mut members = match at.take() {
                Some(Value::Object(members)) => members,
                Some(_) | None => Map::new(),
            };
            let mut inner = members.remove(first);
            write_at(&mut inner, rest, method, value);
            members.extend(inner.map(|inner| (first.clone(), inner)));
            *at = Some(Value::Object(members));
        }
    }
}
