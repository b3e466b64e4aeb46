//! Money as an integer number of billionths of a US dollar, so that many small costs add up exactly.
//!
//! ```
//! use longhaul_sdk::Usd;
//!
//! let price: Usd = "0.000003".parse()?;
//! assert_eq!(price.nanos(), 3_000);
//! assert_eq!(Usd::from_nanos(1_000_000 * price.nanos()).to_string(), "3.00");
//! assert!("1e3".parse::<Usd>().is_err());
//! # Ok::<(), longhaul_sdk::money::InvalidUsd>(())
//! ```

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Number, Value};

/// Number of decimal places.
const PLACES: usize = 9;
const PER_DOLLAR: i64 = 1_000_000_000;

/// An amount in US dollars, exact to nine decimal places and never negative.
///
/// In JSON it is a number, or a string for clients that must not round it. Both are read digit by digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, JsonSchema)]
#[schemars(with = "f64",
    extend("type" = ["number", "string"], "minimum" = 0, "pattern" = r"^[0-9]+(\.[0-9]{0,9}0*)?$"))]
pub struct Usd(i64);

impl Usd {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Makes an amount from billionths of a dollar; zero if negative.
    #[must_use]
    pub fn from_nanos(nanos: i64) -> Self {
        Self(nanos.max(0))
    }

    /// The amount in billionths of a dollar.
    #[must_use]
    pub fn nanos(self) -> i64 {
        self.0
    }
}

/// A text that is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount in US dollars with at most nine decimal places, such as 12.50")]
pub struct InvalidUsd(String);

impl FromStr for Usd {
    type Err = InvalidUsd;

    fn from_str(text: &str) -> Result<Self, InvalidUsd> {
        let invalid = || InvalidUsd(text.chars().take(40).collect());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        // Only zeros beyond the ninth place are tolerated, as in 5.000000000000.
        let fraction = if fraction.len() > PLACES { fraction.trim_end_matches('0') } else { fraction };
        let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) || fraction.len() > PLACES {
            return Err(invalid());
        }
        let whole: i64 = whole.parse().map_err(|_| invalid())?;
        let fraction: i64 = format!("{fraction:0<PLACES$}").parse().map_err(|_| invalid())?;
        let nanos = whole.checked_mul(PER_DOLLAR).and_then(|nanos| nanos.checked_add(fraction));
        nanos.map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / PER_DOLLAR, self.0 % PER_DOLLAR);
        let fraction = format!("{fraction:0PLACES$}");
        // Cents are always shown, finer digits only if they are not zero.
        let shown = fraction.trim_end_matches('0').len().max(2);
        write!(f, "{whole}.{}", &fraction[..shown])
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The shortest text of the amount with at least one decimal place, as for a double.
        let text = self.to_string();
        let text = if text.ends_with(".00") { &text[..text.len() - 1] } else { text.trim_end_matches('0') };
        let number: Number = text.parse().map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            // A number with an exponent is read as the nearest double, whose shortest decimal text gives the
            // intended amount.
            Value::Number(number) => match number.as_f64() {
                Some(double) if number.as_str().contains('e') => double.to_string(),
                Some(_) | None => number.to_string(),
            },
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(D::Error::custom("expected an amount in US dollars"));
            }
        };
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_digit_by_digit() {
        for (text, nanos) in [
            ("0", 0),
            ("12.5", 12_500_000_000),
            ("0.1", 100_000_000),
            ("0.000000001", 1),
            ("5.000000000000", 5_000_000_000),
        ] {
            assert_eq!(text.parse::<Usd>(), Ok(Usd(nanos)), "{text}");
        }
        for text in ["", ".5", "-1", "1e3", "1,5", "0.0000000001", "99999999999", "1.2.3", "NaN"] {
            assert!(text.parse::<Usd>().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_and_strings_round_trip_as_amounts() {
        for json in ["0.1", "\"0.1\"", "0.10"] {
            assert_eq!(serde_json::from_str::<Usd>(json).unwrap(), Usd(100_000_000), "{json}");
        }
        assert_eq!(serde_json::from_str::<Usd>("7").unwrap(), Usd(7 * PER_DOLLAR));
        assert!(serde_json::from_str::<Usd>("-0.1").is_err());
        for (nanos, json) in [(0, "0.0"), (1, "0.000000001"), (1_234_500_000, "1.2345"), (5 * PER_DOLLAR, "5.0")] {
            assert_eq!(serde_json::to_string(&Usd(nanos)).unwrap(), json);
            assert_eq!(serde_json::from_str::<Usd>(json).unwrap(), Usd(nanos), "{json}");
        }
        assert_eq!(Usd(1_234_500_000).to_string(), "1.2345");
        assert_eq!(Usd(5 * PER_DOLLAR).to_string(), "5.00");
    }
}
