//! Functions, filters and tests of templates: those of minijinja, each charging the meter before it runs.
//!
//! Left out: filters whose cost depends on a number (`format`, `batch`, `slice`), and filters that reveal
//! internals.

use std::{collections::HashSet, fmt::Write as _};

use minijinja::{
    Environment, Error, ErrorKind, Output, State, Value, filters, functions, tests,
    value::{Rest, ValueKind, ValueOrKwargs},
};

use super::{
    meter::{Bounded, Size, VALUE_BYTES, hold, invalid, work},
    numbers::{self, is_list},
};

/// Maximum number in a filter's arguments, such as an indent or a precision.
const MAX_NUMBER: i64 = 32;

/// Cost model of a filter, charged before it runs.
#[derive(Debug, Clone, Copy)]
enum Cost {
    /// Reads a value without its items.
    Look,
    /// Copies strings, to at most this many times their length, and the items of lists.
    Copy(usize),
    /// Makes a value for each part of a string.
    Parts,
    Join,
    Replace,
    Indent,
    Json,
}

pub(super) fn register(environment: &mut Environment<'static>) -> HashSet<&'static str> {
    for (name, function) in [
        ("~concat", Value::from_function(concat)),
        ("~add", Value::from_function(add)),
        ("~mul", Value::from_function(multiply)),
        ("~number", Value::from_function(numbers::plain)),
        ("~slice", Value::from_function(slice)),
        ("~list", Value::from_function(list)),
        ("~map", Value::from_function(map)),
        ("~each", Value::from_function(each)),
        ("~held", Value::from_function(|value: &Value| held(value).map(|()| value.clone()))),
        ("~eq", compared(|a, b| a == b)),
        ("~ne", compared(|a, b| a != b)),
        ("~lt", compared(|a, b| a < b)),
        ("~le", compared(|a, b| a <= b)),
        ("~gt", compared(|a, b| a > b)),
        ("~ge", compared(|a, b| a >= b)),
        ("~in", Value::from_function(contains)),
        ("range", Value::from_function(functions::range)),
        ("namespace", Value::from_function(namespace)),
    ] {
        environment.add_global(name, function);
    }
    register_tests(environment);
    register_filters(environment)
}

#[expect(clippy::too_many_lines, reason = "one table of filters and their costs")]
fn register_filters(environment: &mut Environment<'static>) -> HashSet<&'static str> {
    let mut names = HashSet::new();
    let mut add = |name: &'static str, cost: Cost, filter: Value| {
        names.insert(name);
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let mut args = args.into_values();
            take(cost, &args)?;
            if let [value, ..] = args.as_mut_slice() {
                spell(cost, value)?;
            }
            filter.call(state, &args)
        });
    };
    for (name, filter) in [
        ("length", Value::from_function(filters::length)),
        ("count", Value::from_function(filters::length)),
        ("first", Value::from_function(filters::first)),
        ("last", Value::from_function(filters::last)),
        ("default", Value::from_function(filters::default)),
        ("d", Value::from_function(filters::default)),
        ("abs", Value::from_function(filters::abs)),
        ("int", Value::from_function(filters::int)),
        ("float", Value::from_function(filters::float)),
        ("bool", Value::from_function(filters::bool)),
        ("attr", Value::from_function(filters::attr)),
        ("round", Value::from_function(filters::round)),
    ] {
        add(name, Cost::Look, filter);
    }
    for (name, filter) in [
        ("dictsort", Value::from_function(filters::dictsort)),
        ("items", Value::from_function(filters::items)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("sort", Value::from_function(filters::sort)),
        ("unique", Value::from_function(filters::unique)),
        ("groupby", Value::from_function(filters::groupby)),
        ("map", Value::from_function(filters::map)),
        ("select", Value::from_function(filters::select)),
        ("reject", Value::from_function(filters::reject)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("zip", Value::from_function(filters::zip)),
    ] {
        add(name, Cost::Copy(0), filter);
    }
    for (name, filter) in [
        ("upper", Value::from_function(filters::upper)),
        ("lower", Value::from_function(filters::lower)),
        ("title", Value::from_function(filters::title)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("trim", Value::from_function(filters::trim)),
        ("reverse", Value::from_function(filters::reverse)),
        ("safe", Value::from_function(filters::safe)),
    ] {
        add(name, Cost::Copy(3), filter);
    }
    for (name, filter) in
        [("escape", Value::from_function(filters::escape)), ("e", Value::from_function(filters::escape))]
    {
        add(name, Cost::Copy(6), filter);
    }
    for (name, filter) in [
        ("list", Value::from_function(filters::list)),
        ("lines", Value::from_function(filters::lines)),
        ("split", Value::from_function(filters::split)),
    ] {
        add(name, Cost::Parts, filter);
    }
    add("join", Cost::Join, Value::from_function(filters::join));
    add("replace", Cost::Replace, Value::from_function(filters::replace));
    add("indent", Cost::Indent, Value::from_function(filters::indent));
    add("tojson", Cost::Json, Value::from_function(numbers::tojson));
    environment.add_filter("string", |value: &Value| text_of(&[value]));
    names.insert("string");
    names
}

fn register_tests(environment: &mut Environment<'static>) {
    environment.add_test("undefined", tests::is_undefined);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("none", tests::is_none);
    environment.add_test("boolean", tests::is_boolean);
    environment.add_test("odd", tests::is_odd);
    environment.add_test("even", tests::is_even);
    environment.add_test("divisibleby", tests::is_divisibleby);
    environment.add_test("number", tests::is_number);
    environment.add_test("integer", tests::is_integer);
    environment.add_test("int", tests::is_integer);
    environment.add_test("float", tests::is_float);
    environment.add_test("string", tests::is_string);
    environment.add_test("sequence", tests::is_sequence);
    environment.add_test("iterable", tests::is_iterable);
    environment.add_test("mapping", tests::is_mapping);
    environment.add_test("true", tests::is_true);
    environment.add_test("false", tests::is_false);
    for (names, test) in [
        (&["eq", "equalto", "=="][..], compared(|a, b| a == b)),
        (&["ne", "!="], compared(|a, b| a != b)),
        (&["lt", "lessthan", "<"], compared(|a, b| a < b)),
        (&["le", "<="], compared(|a, b| a <= b)),
        (&["gt", "greaterthan", ">"], compared(|a, b| a > b)),
        (&["ge", ">="], compared(|a, b| a >= b)),
        (&["in"], Value::from_function(contains)),
        (&["startingwith"], Value::from_function(tests::is_startingwith)),
        (&["endingwith"], Value::from_function(tests::is_endingwith)),
    ] {
        for &name in names {
            let test = test.clone();
            environment.add_test(name, move |state: &mut State, args: Rest<Value>| -> Result<bool, Error> {
                Size::of_all(&args)?;
                Ok(test.call(state, &args)?.is_true())
            });
        }
    }
}

/// Replaces a filter's input number: by its original text if the filter prints it, otherwise by a plain double.
fn spell(cost: Cost, value: &mut Value) -> Result<(), Error> {
    match cost {
        Cost::Look => *value = numbers::plain(value),
        Cost::Copy(0) | Cost::Json => {}
        Cost::Join => *value = numbers::shown(value)?.unwrap_or_else(|| value.clone()),
        Cost::Copy(_) | Cost::Parts | Cost::Replace | Cost::Indent => {
            if let Some(text) = numbers::text_of(value) {
                *value = Value::from(&*text);
            }
        }
    }
    Ok(())
}

fn take(cost: Cost, args: &[Value]) -> Result<(), Error> {
    let [value, more @ ..] = args else { return Ok(()) };
    let text = value.as_str();
    match cost {
        Cost::Look => return work(1 + text.map_or(0, str::len)),
        Cost::Parts => {
            if let Some(text) = text {
                return hold(VALUE_BYTES * (1 + text.len()));
            }
            let size = Size::of_all(args)?;
            return hold(VALUE_BYTES * size.nodes);
        }
        Cost::Copy(_) | Cost::Join | Cost::Replace | Cost::Indent | Cost::Json => {}
    }
    let size = Size::of_all(args)?;
    work(size.nodes.saturating_mul(16).saturating_add(size.bytes / 4))?;
    let bytes = match cost {
        Cost::Copy(times) => size.bytes.saturating_mul(times).saturating_add(size.nodes * VALUE_BYTES),
        Cost::Join => {
            let between = more.first().map_or(0, |between| between.as_str().map_or(64, str::len));
            shown_bytes(value)?.saturating_add(size.nodes.saturating_mul(between)).saturating_mul(2)
        }
        Cost::Replace => {
            let strings = (text, more.first().and_then(Value::as_str), more.get(1).and_then(Value::as_str));
            let (Some(text), Some(from), Some(to)) = strings else {
                return Err(invalid("replace takes three strings".into()));
            };
            text.matches(from).count().saturating_mul(to.len()).saturating_add(text.len()).saturating_mul(2)
        }
        Cost::Indent => {
            let lines = 1 + text.map_or(0, |text| text.bytes().filter(|byte| *byte == b'\n').count());
            small_numbers(more)?;
            2 * (size.bytes + lines * 32)
        }
        Cost::Json => {
            small_numbers(more)?;
            let indent = if more.is_empty() { 0 } else { 32 * size.depth };
            json_bytes(value)?.saturating_add(size.nodes.saturating_mul(2 + indent)).saturating_mul(2)
        }
        Cost::Look | Cost::Parts => 0,
    };
    hold(bytes)
}

/// Length of a value's printed form, in bytes.
fn shown_bytes(value: &Value) -> Result<usize, Error> {
    struct Count(usize);
    impl std::fmt::Write for Count {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            work(1 + text.len() / 4).map_err(|_| std::fmt::Error)?;
            self.0 += text.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    let value = numbers::shown(value)?.unwrap_or_else(|| value.clone());
    write!(count, "{value}").map_err(|_| invalid("a value is too large".into()))?;
    Ok(count.0)
}

/// Upper bound of the length of a value's JSON, in bytes, including HTML escapes.
fn json_bytes(value: &Value) -> Result<usize, Error> {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            work(1 + bytes.len() / 4).map_err(std::io::Error::other)?;
            let long = bytes.iter().filter(|byte| matches!(byte, b'<' | b'>' | b'&' | b'\'')).count();
            self.0 += bytes.len() + 5 * long + bytes.iter().filter(|byte| matches!(byte, b',' | b':')).count();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, &numbers::Exact(value))
        .map_err(|error| invalid(format!("it cannot be JSON: {error}")))?;
    Ok(count.0)
}

fn small_numbers(args: &[Value]) -> Result<(), Error> {
    for arg in args {
        let is_large = arg.is_number() && i64::try_from(arg.clone()).is_ok_and(|n| n.abs() > MAX_NUMBER);
        if is_large || arg.is_number() && i64::try_from(arg.clone()).is_err() {
            return Err(invalid(format!("a number of a filter is larger than {MAX_NUMBER}")));
        }
        if arg.kind() == ValueKind::Map {
            let members: Vec<Value> = arg.try_iter()?.filter_map(|key| arg.get_item(&key).ok()).collect();
            small_numbers(&members)?;
        }
    }
    Ok(())
}

/// Writes a template value to the output.
pub(super) fn emit(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    struct Counted<'a, 'o>(&'a mut Output<'o>);
    impl std::fmt::Write for Counted<'_, '_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            hold(text.len()).map_err(|_| std::fmt::Error)?;
            self.0.write_str(text)
        }
    }
    defined(value)?;
    if value.as_str().is_none() {
        Size::of(value)?;
    }
    let shown = numbers::shown(value)?;
    let value = shown.as_ref().unwrap_or(value);
    write!(Counted(out), "{value}").map_err(|_| invalid("the template renders more than it may".into()))
}

/// Checks that a value may be stored in another.
///
/// # Errors
/// Fails if the value is nested too deep or contains a namespace.
pub fn held(value: &Value) -> Result<(), Error> {
    Size::of_stored(value).map(drop)
}

/// Serializes a value to JSON.
///
/// # Errors
/// Fails if the value is too large or has no JSON form.
pub fn to_json(value: &Value) -> Result<String, Error> {
    Size::of(value)?;
    let mut json = Bounded::default();
    serde_json::to_writer(&mut json, &numbers::Exact(value))
        .map_err(|error| invalid(format!("it cannot be JSON: {error}")))?;
    Ok(json.into_text())
}

fn defined(value: &Value) -> Result<(), Error> {
    if value.is_undefined() { Err(Error::from(ErrorKind::UndefinedError)) } else { Ok(()) }
}

fn text_of(values: &[&Value]) -> Result<Value, Error> {
    let mut text = Bounded::default();
    for value in values {
        defined(value)?;
        if value.as_str().is_none() {
            Size::of(value)?;
        }
        let shown = numbers::shown(value)?;
        let value = shown.as_ref().unwrap_or(value);
        write!(text, "{value}").map_err(|_| invalid("a text of the template is too long".into()))?;
    }
    Ok(Value::from(text.into_text()))
}

fn concat(left: &Value, right: &Value) -> Result<Value, Error> {
    text_of(&[left, right])
}

fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    if is_list(left) && is_list(right) {
        let mut items = Vec::new();
        for item in left.try_iter()?.chain(right.try_iter()?) {
            hold(2 * VALUE_BYTES)?;
            items.push(item);
        }
        return Ok(Value::from(items));
    }
    if left.as_str().is_some() && right.as_str().is_some() {
        return concat(left, right);
    }
    arithmetic("+", left, right, i128::checked_add, |a, b| a + b)
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    match (left.as_str(), right.as_str()) {
        (Some(text), None) => repeat(text, right),
        (None, Some(text)) => repeat(text, left),
        (_, _) => arithmetic("*", left, right, i128::checked_mul, |a, b| a * b),
    }
}

fn repeat(text: &str, times: &Value) -> Result<Value, Error> {
    let times = usize::try_from(times.clone())?;
    hold(text.len().saturating_mul(times).saturating_mul(2))?;
    Ok(Value::from(text.repeat(times)))
}

fn arithmetic(
    sign: &str,
    left: &Value,
    right: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    real: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let (left, right) = (&numbers::plain(left), &numbers::plain(right));
    let is_number = |value: &Value| value.is_number() || value.kind() == ValueKind::Bool;
    if !is_number(left) || !is_number(right) {
        defined(left)?;
        defined(right)?;
        let (left, right) = (left.kind(), right.kind());
        return Err(invalid(format!("tried to use {sign} operator on unsupported types {left} and {right}")));
    }
    let is_real = |value: &Value| value.is_number() && !value.is_integer();
    if !is_real(left) && !is_real(right) {
        let result = whole(i128::try_from(left.clone())?, i128::try_from(right.clone())?);
        let result = result.ok_or_else(|| invalid(format!("unable to calculate {left} {sign} {right}")))?;
        return Ok(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from));
    }
    Ok(Value::from(real(f64::try_from(left.clone())?, f64::try_from(right.clone())?)))
}

fn compared(compare: fn(&Value, &Value) -> bool) -> Value {
    Value::from_function(move |left: &Value, right: &Value| -> Result<bool, Error> {
        defined(left)?;
        defined(right)?;
        if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
            work(left.len().min(right.len()) / 8)?;
        } else if left.as_object().is_some() && right.as_object().is_some() {
            Size::of(left)?;
            Size::of(right)?;
        }
        Ok(compare(&numbers::plain(left), &numbers::plain(right)))
    })
}

fn contains(state: &mut State, needle: &Value, container: &Value) -> Result<bool, Error> {
    Size::of(container)?;
    let needle = &numbers::plain(needle);
    if needle.as_str().is_none() {
        Size::of(needle)?;
    }
    tests::is_in(state, needle, container)
}

fn list(items: Rest<Value>) -> Result<Value, Error> {
    hold((1 + items.len()) * VALUE_BYTES)?;
    items.iter().try_for_each(held)?;
    Ok(Value::from(items.0))
}

fn map(pairs: Rest<Value>) -> Result<Value, Error> {
    hold((1 + pairs.len()) * 2 * VALUE_BYTES)?;
    pairs.iter().try_for_each(held)?;
    Ok(Value::from_pairs(pairs.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()))))
}

fn namespace(state: &mut State, defaults: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let defaults = defaults.into_values();
    hold(8 * VALUE_BYTES)?;
    defaults.iter().try_for_each(held)?;
    Value::from_function(functions::namespace).call(state, &defaults)
}

fn each(value: &Value) -> Result<Value, Error> {
    work(1 + value.as_str().map_or(0, str::len))?;
    Ok(value.clone())
}

fn slice(value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    defined(value)?;
    let number = |value: &Value| -> Result<Option<i64>, Error> {
        if value.is_none() { Ok(None) } else { Ok(Some(i64::try_from(value.clone())?)) }
    };
    let (start, stop, step) = (number(start)?, number(stop)?, number(step)?.unwrap_or(1));
    if step < 1 {
        return Err(invalid("a slice goes forwards".into()));
    }
    let pick = |length: usize| {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let at = |bound: i64| if bound < 0 { length.saturating_add(bound).max(0) } else { bound.min(length) };
        let (start, stop) = (at(start.unwrap_or(0)), at(stop.unwrap_or(length)));
        let count = usize::try_from(stop - start).unwrap_or(0);
        (usize::try_from(start).unwrap_or(0), count, usize::try_from(step).unwrap_or(usize::MAX))
    };
    if let Some(text) = value.as_str() {
        work(text.len())?;
        hold(2 * text.len())?;
        let (start, count, step) = pick(text.chars().count());
        return Ok(Value::from(text.chars().skip(start).take(count).step_by(step).collect::<String>()));
    }
    let length = value.len().ok_or_else(|| invalid(format!("value of type {} cannot be sliced", value.kind())))?;
    if value.kind() == ValueKind::Map {
        return Err(invalid("value of type map cannot be sliced".into()));
    }
    let (start, count, step) = pick(length);
    work(start.min(length))?;
    hold(2 * VALUE_BYTES * count)?;
    Ok(Value::from(value.try_iter()?.skip(start).take(count).step_by(step).collect::<Vec<_>>()))
}
