//! What a list of writes comes to.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::path::{Path, find};

/// How a value is written to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    /// Replaces what is there.
    #[default]
    Set,
    /// Objects are merged into each other, all the way down; anything else replaces.
    Merge,
    /// An object's members replace those of the same name; anything else replaces.
    Assign,
    /// Becomes the last item of the list.
    Push,
    /// Lists and texts are put one after the other.
    Concat,
}

impl Method {
    pub(crate) const ALL: [Self; 5] = [Self::Set, Self::Merge, Self::Assign, Self::Push, Self::Concat];

    /// The name in `_outputMethod`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Merge => "merge",
            Self::Assign => "assign",
            Self::Push => "push",
            Self::Concat => "concat",
        }
    }

    /// What `old` becomes.
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

/// A list as it is, nothing as an empty one, anything else as its only item.
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

/// One write, as far as its effect goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effect<'a> {
    pub(super) path: &'a Path,
    pub(super) method: Method,
    pub(super) value: &'a Value,
}

/// The value at `path` after `writes`, which are given from the oldest on. Looks for the highest place at or above the path that is
/// written at all, walks back to the newest `set` that covers it, which hides everything before, and replays from there what
/// touches that place. A write to a part hides nothing else, but it may decide what a later `push` or `concat` above it finds.
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
    // The common case, without copying what is not asked for.
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

/// Writes below `at`. What is not an object on the way becomes one: the path says that it is.
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
