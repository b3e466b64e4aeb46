//! Functions and filters that scripts have in addition to minijinja's own: parsing text and building replies
//! (docs/guide/scripted-model.md).

use std::sync::Arc;

use longhaul_guards::template::{Engine, held, hold, to_json, value_of, work};
use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, ValueKind, from_args},
};
use quick_cache::sync::Cache;
use regex::{Captures, Regex, RegexBuilder};

/// Largest compiled pattern, in bytes; larger ones are refused.
const MAX_REGEX_BYTES: usize = 256 * 1024;

/// Patterns cached per process. Scripts usually name patterns literally, so few exist.
const MAX_PATTERNS: usize = 128;

/// Work units charged for compiling a pattern.
const COMPILE_WORK: usize = 100_000;

/// Digits read of a number in a text.
const MAX_DIGITS: usize = 400;

/// Bytes charged for one value in a list.
const VALUE_BYTES: usize = 32;

/// Bytes charged per byte of parsed JSON.
const FROM_JSON_BYTES: usize = 48;

type Patterns = Arc<Cache<String, Regex>>;

pub(super) fn register(engine: &mut Engine) {
    let patterns = Patterns::new(Cache::new(MAX_PATTERNS));
    let finds = Arc::clone(&patterns);
    engine.add_filter("regex_find", move |_: &mut State, args: &[Value]| {
        let (text, pattern): (&str, &str) = from_args(args)?;
        let regex = compiled(&finds, pattern, text)?;
        regex.captures(text).map_or(Ok(Value::from(())), |captures| captured(&regex, &captures))
    });
    engine.add_filter("regex_findall", move |_: &mut State, args: &[Value]| {
        let (text, pattern): (&str, &str) = from_args(args)?;
        let regex = compiled(&patterns, pattern, text)?;
        let found: Result<Vec<Value>, Error> =
            regex.captures_iter(text).map(|captures| captured(&regex, &captures)).collect();
        found.map(Value::from)
    });
    engine.add_filter("from_json", |_: &mut State, args: &[Value]| from_json(from_args::<(&str,)>(args)?.0));
    engine.add_filter("to_json", |_: &mut State, args: &[Value]| {
        let (value,): (Value,) = from_args(args)?;
        to_json(&value).map(Value::from)
    });
    engine.add_filter("lines", |_: &mut State, args: &[Value]| {
        let (text,): (&str,) = from_args(args)?;
        hold(text.len() + VALUE_BYTES * (1 + text.bytes().filter(|byte| *byte == b'\n').count()))?;
        Ok(text.lines().collect())
    });
    engine.add_filter("number", |_: &mut State, args: &[Value]| number(from_args::<(Value,)>(args)?.0));
    engine.add_function("call", |_: &mut State, args: &[Value]| {
        let (name, arguments): (&str, Option<Value>) = from_args(args)?;
        hold(8 * VALUE_BYTES + name.len())?;
        let arguments = arguments.unwrap_or_else(|| Value::from_pairs(std::iter::empty::<(&str, Value)>()));
        held(&arguments)?;
        Ok(Value::from_pairs([("name", Value::from(name)), ("arguments", arguments)]))
    });
    engine.add_function("text", |_: &mut State, args: &[Value]| {
        let (value, options): (Value, Kwargs) = from_args(args)?;
        reply([("text", as_text(value)?)], &options)
    });
    engine.add_function("raw", |_: &mut State, args: &[Value]| {
        let (text, options): (Value, Kwargs) = from_args(args)?;
        if text.as_str().is_none() {
            return Err(invalid("raw takes a string".into()));
        }
        reply([("raw", text)], &options)
    });
    engine.add_function("calls", |_: &mut State, args: &[Value]| {
        let (calls, options): (Value, Kwargs) = from_args(args)?;
        let text: Option<Value> = options.get("text")?;
        let text = text.map_or_else(|| Ok(Value::from("")), as_text)?;
        reply([("calls", calls), ("text", text)], &options)
    });
}

/// The JSON of a reply, including the options common to all kinds of replies.
fn reply<const N: usize>(parts: [(&'static str, Value); N], options: &Kwargs) -> Result<Value, Error> {
    let latency: Option<u64> = options.get("latency_ms")?;
    options.assert_all_used()?;
    let latency = latency.map(|latency| ("latency_ms", Value::from(latency)));
    to_json(&Value::from_pairs(parts.into_iter().chain(latency))).map(Value::from)
}

/// Converts a value that is not a string to its JSON, so that `text({…})` is a structured answer.
fn as_text(value: Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if value.kind() == ValueKind::String { Ok(value) } else { to_json(&value).map(Value::from) }
}

fn compiled(patterns: &Patterns, pattern: &str, text: &str) -> Result<Regex, Error> {
    work((text.len() / 4).saturating_mul(1 + pattern.len() / 16))?;
    if let Some(regex) = patterns.get(pattern) {
        return Ok(regex);
    }
    work(COMPILE_WORK)?;
    let regex = RegexBuilder::new(pattern)
        .size_limit(MAX_REGEX_BYTES)
        .build()
        .map_err(|error| invalid(format!("not a regular expression: {error}")))?;
    patterns.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
}

/// The value of a match: a map of named groups, a list of several groups, the text of a single group, or the
/// whole match if there is no group. A group that did not match is none.
fn captured(regex: &Regex, captures: &Captures<'_>) -> Result<Value, Error> {
    hold(2 * VALUE_BYTES * captures.len() + captures.iter().flatten().map(|group| group.len()).sum::<usize>())?;
    let group = |at: usize| captures.get(at).map_or(Value::from(()), |group| Value::from(group.as_str()));
    let named: Vec<(&str, Value)> =
        regex.capture_names().enumerate().filter_map(|(at, name)| name.map(|name| (name, group(at)))).collect();
    if !named.is_empty() {
        return Ok(Value::from_pairs(named));
    }
    Ok(match captures.len() {
        1 => group(0),
        2 => group(1),
        groups => (1..groups).map(group).collect(),
    })
}

fn from_json(text: &str) -> Result<Value, Error> {
    // Two bytes of JSON can be one number in a list, which is stored as a parsed value and as a template value.
    hold(text.len().saturating_mul(FROM_JSON_BYTES))?;
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| invalid(format!("from_json: not JSON: {error}")))?;
    Ok(value_of(&value))
}

/// The first number in a text, ignoring text around it (`EUR 1,234.50` is 1234.5); none if there is no digit.
/// Commas group thousands; a point separates the decimals.
fn number(value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::Number {
        return Ok(value);
    }
    let Some(text) = value.as_str() else { return Ok(Value::from(())) };
    work(text.len())?;
    let Some(first) = text.find(|c: char| c.is_ascii_digit()) else {
        return Ok(Value::from(()));
    };
    let digits: String = text[first..]
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
        .filter(|c| *c != ',')
        .take(MAX_DIGITS)
        .collect();
    let digits = digits.trim_end_matches('.');
    let negative = text[..first].trim_end().ends_with('-');
    let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
    Ok(match (signed.parse::<i128>(), signed.parse::<f64>()) {
        (Ok(whole), _) => whole.into(),
        (Err(_), Ok(real)) => real.into(),
        (Err(_), Err(_)) => Value::from(()),
    })
}

fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}
