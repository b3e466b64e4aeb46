//! JSON values in templates: numbers support arithmetic and print with their original digits
//! (docs/design/guards.md).
//!
//! A minijinja number is a 128-bit integer or a double. Any other number becomes the nearest unused double, and the
//! rendering maps that double back to the original text when it is printed. A rendering stays on one thread from
//! start to end.

use std::{cell::RefCell, collections::HashMap, fmt, io, sync::Arc};

use minijinja::{
    Error, Value,
    value::{Kwargs, Object, ObjectRepr, ValueKind},
};
use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeMap},
};
use serde_json::{
    Number, Value as Json,
    ser::{Formatter, PrettyFormatter},
};

use super::meter::{VALUE_BYTES, hold, invalid};

thread_local! {
    static TEXTS: RefCell<Option<Texts>> = const { RefCell::new(None) };
}

/// Keeps the original texts of a rendering's numbers until it is dropped.
pub(super) struct Kept(());

impl Kept {
    pub(super) fn begin() -> Self {
        TEXTS.set(Some(Texts::default()));
        Self(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        TEXTS.set(None);
    }
}

/// Converts JSON to a template value. While an [`Engine`](super::Engine) renders, each number prints with its
/// original digits; otherwise decimals print as doubles.
#[must_use]
pub fn value_of(json: &Json) -> Value {
    TEXTS.with_borrow_mut(|texts| convert(json, texts))
}

fn convert(json: &Json, texts: &mut Option<Texts>) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => whole(number).unwrap_or_else(|| match texts {
            Some(texts) => texts.add(number),
            None => number.as_f64().map_or_else(|| Value::from(number.as_str()), Value::from),
        }),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(|item| convert(item, texts)).collect(),
        Json::Object(members) => {
            Value::from_pairs(members.iter().map(|(name, member)| (name.as_str(), convert(member, texts))))
        }
    }
}

/// Converts an integer of up to 128 bits. `None` for minus zero, whose sign only a double keeps.
fn whole(number: &Number) -> Option<Value> {
    if number.as_str() == "-0" {
        return None;
    }
    let value = number.as_i64().map(Value::from).or_else(|| number.as_u64().map(Value::from));
    value.or_else(|| number.as_i128().map(Value::from)).or_else(|| number.as_u128().map(Value::from))
}

/// Original texts of numbers represented as doubles, keyed by the bits of the double.
#[derive(Debug, Default)]
struct Texts {
    by_double: HashMap<u64, Box<str>>,
    /// Start of the search for the next unused double, which keeps many spellings of one number linear.
    next_free: HashMap<u64, f64>,
}

impl Texts {
    /// Assigns the nearest double that no other text uses.
    fn add(&mut self, number: &Number) -> Value {
        let text = number.as_str();
        let Some(nearest) = number.as_f64() else { return Value::from(text) };
        let is_taken = |double: f64| self.by_double.get(&double.to_bits()).is_some_and(|other| **other != *text);
        let mut double = nearest;
        if is_taken(double) {
            double = self.next_free.get(&nearest.to_bits()).copied().unwrap_or(nearest);
            while is_taken(double) {
                double = double.next_up();
            }
            self.next_free.insert(nearest.to_bits(), double);
        }
        self.by_double.insert(double.to_bits(), text.into());
        Value::from(double)
    }
}

/// Original text of a number represented as a double.
pub(super) fn text_of(value: &Value) -> Option<Box<str>> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    let bits = f64::try_from(value.clone()).ok()?.to_bits();
    TEXTS.with_borrow(|texts| texts.as_ref()?.by_double.get(&bits).cloned())
}

/// Converts a value for arithmetic: the double nearest to the original text instead of the assigned one.
pub(super) fn plain(value: &Value) -> Value {
    text_of(value).and_then(|text| text.parse::<f64>().ok()).map_or_else(|| value.clone(), Value::from)
}

/// Copies the value with original number texts, for printing. `None` if it holds no such number.
pub(super) fn shown(value: &Value) -> Result<Option<Value>, Error> {
    if TEXTS.with_borrow(|texts| texts.as_ref().is_none_or(|texts| texts.by_double.is_empty())) {
        return Ok(None);
    }
    spelled(value)
}

fn spelled(value: &Value) -> Result<Option<Value>, Error> {
    let kind = value.kind();
    if kind == ValueKind::Number {
        return Ok(text_of(value).map(|text| Value::from_object(Written(text))));
    }
    let mut is_other = false;
    let mut spell = |part: Value| -> Result<Value, Error> {
        hold(2 * VALUE_BYTES)?;
        let spelled = spelled(&part)?;
        is_other |= spelled.is_some();
        Ok(spelled.unwrap_or(part))
    };
    let copy = if kind == ValueKind::Map {
        let member = |key: Value| Ok((key.clone(), spell(value.get_item(&key)?)?));
        Value::from_pairs(value.try_iter()?.map(member).collect::<Result<Vec<_>, Error>>()?)
    } else if is_list(value) {
        Value::from(value.try_iter()?.map(spell).collect::<Result<Vec<_>, Error>>()?)
    } else {
        return Ok(None);
    };
    Ok(is_other.then_some(copy))
}

pub(super) fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// Original text of a number, for printing only.
struct Written(Box<str>);

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Object for Written {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Serializes a value to JSON with its numbers in their original form.
pub(super) struct Exact<'v>(pub(super) &'v Value);

impl Serialize for Exact<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(value) = *self;
        if let Some(text) = text_of(value) {
            return text.parse::<Number>().map_err(S::Error::custom)?.serialize(serializer);
        }
        if is_list(value) {
            return serializer.collect_seq(value.try_iter().map_err(S::Error::custom)?.map(Owned));
        }
        if value.kind() != ValueKind::Map {
            return value.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        for key in value.try_iter().map_err(S::Error::custom)? {
            let member = value.get_item(&key).map_err(S::Error::custom)?;
            map.serialize_entry(&key, &Exact(&member))?;
        }
        map.end()
    }
}

struct Owned(Value);

impl Serialize for Owned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Exact(&self.0).serialize(serializer)
    }
}

/// Same output as minijinja's `tojson`: spaces after separators, and characters special to HTML escaped. The caller
/// has already charged the meter.
pub(super) fn tojson(value: &Value, indent: Option<Value>, args: Kwargs) -> Result<Value, Error> {
    let indent = indent.map_or_else(|| args.get("indent"), |indent| Ok(Some(indent)))?;
    args.assert_all_used()?;
    let width = match indent {
        None => None,
        Some(indent) if indent.kind() == ValueKind::Bool => indent.is_true().then_some(2),
        Some(indent) => Some(usize::try_from(indent)?),
    };
    let mut text = Vec::new();
    let written = match width {
        Some(width) => {
            let spaces = " ".repeat(width);
            let pretty = PrettyFormatter::with_indent(spaces.as_bytes());
            Exact(value).serialize(&mut serde_json::Serializer::with_formatter(&mut text, pretty))
        }
        None => Exact(value).serialize(&mut serde_json::Serializer::with_formatter(&mut text, Spaced)),
    };
    written.map_err(|error| invalid(format!("it cannot be JSON: {error}")))?;
    let mut safe = String::with_capacity(text.len());
    for c in String::from_utf8_lossy(&text).chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\'' => safe.push_str("\\u0027"),
            other => safe.push(other),
        }
    }
    Ok(Value::from_safe_string(safe))
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
