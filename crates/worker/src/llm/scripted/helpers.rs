//! What a script can use besides minijinja's own filters: parsing text, and writing replies (docs/scripted-model.md).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use minijinja::{
    Environment, Error, ErrorKind, Value,
    value::{Kwargs, ValueKind},
};
use regex::{Captures, Regex, RegexBuilder};

use super::program::value_of;

/// The largest compiled form of one pattern; larger ones are refused.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

/// Patterns kept per program. Programs name theirs literally, so more means they are computed.
const MAX_PATTERNS: usize = 128;

type Patterns = Arc<Mutex<HashMap<String, Regex>>>;

pub(super) fn register(environment: &mut Environment<'static>) {
    let patterns = Patterns::default();
    let finds = Arc::clone(&patterns);
    environment.add_filter("regex_find", move |text: &str, pattern: &str| -> Result<Value, Error> {
        let regex = compiled(&finds, pattern)?;
        Ok(regex.captures(text).map_or(Value::from(()), |captures| captured(&regex, &captures)))
    });
    environment.add_filter("regex_findall", move |text: &str, pattern: &str| -> Result<Value, Error> {
        let regex = compiled(&patterns, pattern)?;
        Ok(regex.captures_iter(text).map(|captures| captured(&regex, &captures)).collect())
    });
    environment.add_filter("from_json", from_json);
    environment.add_filter("to_json", |value: Value| to_json(&value));
    environment.add_filter("lines", |text: &str| -> Value { text.lines().collect() });
    environment.add_filter("number", number);
    environment.add_function("call", |name: &str, arguments: Option<Value>| -> Value {
        let arguments = arguments.unwrap_or_else(|| Value::from_pairs(std::iter::empty::<(&str, Value)>()));
        Value::from_pairs([("name", Value::from(name)), ("arguments", arguments)])
    });
    environment.add_function("text", |value: Value, options: Kwargs| -> Result<String, Error> {
        reply([("text", as_text(value)?)], &options)
    });
    environment.add_function("raw", |text: &str, options: Kwargs| -> Result<String, Error> {
        reply([("raw", Value::from(text))], &options)
    });
    environment.add_function("calls", |calls: Value, options: Kwargs| -> Result<String, Error> {
        let text: Option<Value> = options.get("text")?;
        let text = text.map_or_else(|| Ok(Value::from("")), as_text)?;
        reply([("calls", calls), ("text", text)], &options)
    });
}

/// The JSON of a reply, with the options that every kind of reply takes.
fn reply<const N: usize>(parts: [(&'static str, Value); N], options: &Kwargs) -> Result<String, Error> {
    let latency: Option<u64> = options.get("latency_ms")?;
    options.assert_all_used()?;
    let latency = latency.map(|latency| ("latency_ms", Value::from(latency)));
    to_json(&Value::from_pairs(parts.into_iter().chain(latency)))
}

/// A value that is not text becomes its JSON, so that `text({…})` is a structured answer.
fn as_text(value: Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if value.kind() == ValueKind::String { Ok(value) } else { to_json(&value).map(Value::from) }
}

fn compiled(patterns: &Patterns, pattern: &str) -> Result<Regex, Error> {
    let mut patterns = patterns.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = patterns.get(pattern) {
        return Ok(regex.clone());
    }
    let regex = RegexBuilder::new(pattern)
        .size_limit(MAX_REGEX_BYTES)
        .build()
        .map_err(|error| invalid(format!("not a regular expression: {error}")))?;
    if patterns.len() >= MAX_PATTERNS {
        patterns.clear();
    }
    patterns.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
}

/// What a match means: named groups make a map, several groups a list, one group its text, no group the whole match. A group
/// that took no part is none.
fn captured(regex: &Regex, captures: &Captures<'_>) -> Value {
    let group = |at: usize| captures.get(at).map_or(Value::from(()), |group| Value::from(group.as_str()));
    let named: Vec<(&str, Value)> =
        regex.capture_names().enumerate().filter_map(|(at, name)| name.map(|name| (name, group(at)))).collect();
    if !named.is_empty() {
        return Value::from_pairs(named);
    }
    match captures.len() {
        1 => group(0),
        2 => group(1),
        groups => (1..groups).map(group).collect(),
    }
}

fn from_json(text: &str) -> Result<Value, Error> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| invalid(format!("from_json: not JSON: {error}")))?;
    Ok(value_of(value))
}

fn to_json(value: &Value) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| invalid(format!("to_json: {error}")))
}

/// The first number in a text, however it is decorated (`EUR 1,234.50` is 1234.5); none when there is no digit. A comma
/// groups thousands; a point begins the decimals.
fn number(value: Value) -> Value {
    if value.kind() == ValueKind::Number {
        return value;
    }
    let text = value.to_string();
    let Some(first) = text.find(|c: char| c.is_ascii_digit()) else {
        return Value::from(());
    };
    let digits: String = text[first..]
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
        .filter(|c| *c != ',')
        .collect();
    let digits = digits.trim_end_matches('.');
    let negative = text[..first].trim_end().ends_with('-');
    let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
    match (signed.parse::<i64>(), signed.parse::<f64>()) {
        (Ok(whole), _) => whole.into(),
        (Err(_), Ok(real)) => real.into(),
        (Err(_), Err(_)) => Value::from(()),
    }
}

fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}
