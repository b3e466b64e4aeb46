//! Exact JSON numbers: each keeps its text. This module limits and compares them (docs/design/guards.md).
//!
//! ```
//! use std::cmp::Ordering;
//!
//! use longhaul_sdk::numbers;
//! use serde_json::{Number, Value};
//!
//! let exact: Value = serde_json::from_str("12345678901234567890.10")?;
//! assert_eq!(exact.to_string(), "12345678901234567890.10");
//!
//! let (one, other): (Number, Number) = ("1.10".parse()?, "1.1".parse()?);
//! assert_eq!(numbers::compare(&one, &other), Ordering::Equal);
//!
//! let oversized: Value = serde_json::from_str("[1, 1e999]")?;
//! assert_eq!(numbers::check(&oversized).map_err(|error| error.path), Err("/1".into()));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::cmp::Ordering;

use serde::{Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Number, Value};

use crate::json_pointer::token;

/// Maximum number of digits of one number, including its exponent.
pub const MAX_DIGITS: usize = 128;

/// A number beyond the limits. It is refused, never rounded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a number has more than {MAX_DIGITS} digits or is beyond the range of a double")]
pub struct OversizedNumber {
    /// JSON pointer of the number within the value.
    pub path: String,
}

impl OversizedNumber {
    /// Returns the message with the path, for a reader who does not see the path elsewhere.
    #[must_use]
    pub fn with_path(&self) -> String {
        let at = if self.path.is_empty() { "the top level" } else { &self.path };
        format!("{self} (at {at})")
    }
}

/// Checks every number of `value`.
///
/// # Errors
/// Returns the first number that has more than [`MAX_DIGITS`] digits, or that a double would turn into zero or
/// infinity.
pub fn check(value: &Value) -> Result<(), OversizedNumber> {
    match find_oversized(value, &mut String::new()) {
        Some(path) => Err(OversizedNumber { path }),
        None => Ok(()),
    }
}

fn find_oversized(value: &Value, path: &mut String) -> Option<String> {
    let length = path.len();
    match value {
        Value::Number(number) => (!fits(number)).then(|| path.clone()),
        Value::Array(items) => items.iter().enumerate().find_map(|(at, item)| {
            path.push_str(&format!("/{at}"));
            let found = find_oversized(item, path);
            path.truncate(length);
            found
        }),
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            path.push('/');
            path.push_str(&token(name));
            let found = find_oversized(member, path);
            path.truncate(length);
            found
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

fn fits(number: &Number) -> bool {
    let text = number.as_str();
    // The common case: every 64-bit integer is short enough.
    if text.len() <= 20 && !text.contains('e') {
        return true;
    }
    let is_zero = || Decimal::of(number).digits.is_empty();
    text.bytes().filter(u8::is_ascii_digit).count() <= MAX_DIGITS
        && number.as_f64().is_some_and(|double| double != 0.0 || is_zero())
}

/// Compares two numbers by value, exactly: `1`, `1.0` and `1e0` are equal, and no digit is lost.
#[must_use]
pub fn compare(left: &Number, right: &Number) -> Ordering {
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        return left.cmp(&right);
    }
    let (left, right) = (Decimal::of(left), Decimal::of(right));
    match (left.sign(), right.sign()) {
        (0, 0) => Ordering::Equal,
        (one, other) if one != other => one.cmp(&other),
        (-1, _) => right.magnitude().cmp(&left.magnitude()),
        _ => left.magnitude().cmp(&right.magnitude()),
    }
}

/// `0.DIGITS × 10^exponent`, without leading and trailing zeros; zero has no digits.
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(number: &Number) -> Self {
        let text = number.as_str();
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        // An exponent beyond 64 bits belongs to an oversized number, which is never compared.
        let written = exponent.parse().unwrap_or(if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 });
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let leading = all.len() - significant.len();
        let exponent = written + whole.len() as i64 - leading as i64;
        Self { is_negative, digits: significant.trim_end_matches('0').to_owned(), exponent }
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    fn magnitude(&self) -> (i64, &str) {
        (self.exponent, &self.digits)
    }
}

/// Reads `value` into a Rust type. Types with `#[serde(flatten)]` or `#[serde(untagged)]` cannot hold a number that
/// fits neither a 64-bit integer nor a double; they get the nearest double.
///
/// # Errors
/// The value does not fit the type.
pub fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(value).or_else(|error| T::deserialize(&rounded(value)).map_err(|_| error))
}

fn rounded(value: &Value) -> Value {
    with_numbers(value, &|number| {
        let is_whole = number.is_i64() || number.is_u64();
        if is_whole { None } else { number.as_f64().and_then(Number::from_f64) }
    })
}

/// Returns `value` with one spelling per number, for request hashes. A number that a 64-bit integer or a double
/// holds exactly is written as that type writes it (`1.50` as `1.5`, `1e2` as `100.0`; `1` and `1.0` stay
/// distinct). Any other number is unchanged.
#[must_use]
pub fn canonical(value: &Value) -> Value {
    with_numbers(value, &|number| {
        if number.is_u64() || (number.is_i64() && number.as_str() != "-0") {
            return None;
        }
        number.as_f64().and_then(Number::from_f64).filter(|double| compare(double, number) == Ordering::Equal)
    })
}

fn with_numbers(value: &Value, other: &dyn Fn(&Number) -> Option<Number>) -> Value {
    match value {
        Value::Number(number) => Value::Number(other(number).unwrap_or_else(|| number.clone())),
        Value::Array(items) => items.iter().map(|item| with_numbers(item, other)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), with_numbers(member, other))).collect()
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Serializes the [`canonical`] value.
///
/// # Errors
/// The serializer fails.
pub fn serialize_canonical<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    canonical(value).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::spec::{ToolRef, ValidatorRef};

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn number(text: &str) -> Number {
        text.parse().unwrap()
    }

    #[test]
    fn number_keeps_its_text() {
        for text in
            ["12345678901234567890123", "-0", "1.10", "0.5000", "18446744073709551616", "1e-7", "[1.0,{\"a\":2.50}]"]
        {
            assert_eq!(value(text).to_string(), text);
        }
        // Only the exponent is normalized.
        assert_eq!(value("1E5").to_string(), "1e+5");
    }

    #[test]
    fn number_of_128_digits_fits_and_longer_is_refused() {
        let long = "9".repeat(MAX_DIGITS);
        for text in [&long, &format!("-0.{}", &long[1..]), "1.7976931348623157e308", "5e-324", "0e999", "0.0"] {
            assert_eq!(check(&value(text)), Ok(()), "{text}");
        }
        for text in [&format!("{long}9"), &format!("0.{long}"), "1e999999", "1e-999999", &format!("1e{long}")] {
            assert!(check(&value(text)).is_err(), "{text}");
        }
        let nested = check(&value(&format!(r#"{{"a/b":[1,{{"c":{long}9}}]}}"#))).unwrap_err();
        assert_eq!(nested.path, "/a~1b/1/c");
        assert!(nested.with_path().ends_with("(at /a~1b/1/c)"), "{}", nested.with_path());
    }

    #[test]
    fn comparison_is_exact() {
        let ascending = [
            "-1e300",
            "-12345678901234567890124",
            "-12345678901234567890123",
            "-0.10",
            "0",
            "1e-7",
            "0.1",
            "0.10000000000000000000001",
            "1",
            "9007199254740993",
            "9007199254740993.5",
            "12345678901234567890123",
            "12345678901234567890124",
            "1e300",
        ];
        for (at, left) in ascending.iter().enumerate() {
            for (other, right) in ascending.iter().enumerate() {
                assert_eq!(compare(&number(left), &number(right)), at.cmp(&other), "{left} {right}");
            }
        }
        for (left, right) in [("1", "1.0"), ("100", "1e2"), ("0.5", "5e-1"), ("0", "-0.0"), ("1.10", "1.1")] {
            assert_eq!(compare(&number(left), &number(right)), Ordering::Equal, "{left} {right}");
        }
    }

    #[test]
    fn canonical_text_matches_the_exact_double() {
        for (text, expected) in [
            ("1", "1"),
            ("1.0", "1.0"),
            ("1.50", "1.5"),
            ("1e2", "100.0"),
            ("-0", "-0.0"),
            ("0.10", "0.1"),
            ("18446744073709551615", "18446744073709551615"),
            ("1e-7", "1e-7"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("[0.1000000000000000000001]", "[0.1000000000000000000001]"),
        ] {
            assert_eq!(canonical(&value(text)).to_string(), expected);
        }
    }

    #[test]
    fn typed_values_accept_numbers_their_type_holds() {
        #[derive(Deserialize)]
        struct Flat {
            exact: Value,
            ratio: f64,
            #[serde(flatten)]
            rest: BTreeMap<String, f64>,
        }
        let flat: Flat = typed(&value(r#"{"exact":1.5,"ratio":1.50,"other":2.50}"#)).unwrap();
        assert_eq!((flat.ratio, flat.rest["other"]), (1.5, 2.5));
        assert_eq!(flat.exact, json!(1.5));
        let text = r#"{"name":"n","settings":{"limit":12345678901234567890123}}"#;
        for read in [
            serde_json::to_string(&typed::<ToolRef>(&value(text)).unwrap()),
            serde_json::to_string(&typed::<ValidatorRef>(&value(text)).unwrap()),
        ] {
            assert!(read.unwrap().contains("12345678901234567890123"));
        }
        let exact: Vec<Value> = typed(&value("[12345678901234567890123, 1.10]")).unwrap();
        assert_eq!(json!(exact).to_string(), "[12345678901234567890123,1.10]");
        assert!(typed::<u8>(&json!("x")).is_err());
    }
}
