//! Parses the wait that an endpoint asks for.

use std::{sync::LazyLock, time::Duration};

use chrono::DateTime;
use regex::Regex;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// Limit of any wait that an endpoint asks for (docs/reference/failures.md).
const MAX_WAIT: Duration = Duration::from_hours(24);

/// Reads `retry-after-ms`, then `Retry-After` as seconds or as a date. A date is taken relative to the
/// response's `Date` header, so that clock skew does not matter; without that header it is ignored.
pub(super) fn read(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(wait) = text("retry-after-ms").and_then(|ms| seconds(ms, 1_000.0)) {
        return Some(wait);
    }
    let value = text(RETRY_AFTER.as_str())?;
    if let Some(wait) = seconds(value, 1.0) {
        return Some(wait);
    }
    let until = DateTime::parse_from_rfc2822(value).ok()?;
    let now = DateTime::parse_from_rfc2822(text(DATE.as_str())?).ok()?;
    // A date in the past means no wait.
    Some((until - now).to_std().unwrap_or(Duration::ZERO).min(MAX_WAIT))
}

fn seconds(text: &str, divisor: f64) -> Option<Duration> {
    capped(text.parse::<f64>().ok()? / divisor)
}

/// The wait in a field of an error body, in seconds.
pub(super) fn in_body(body: &[u8]) -> Option<Duration> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error").unwrap_or(&body);
    let fields = ["resets_in_seconds", "retry_after", "retry_after_seconds"];
    fields.iter().find_map(|field| capped(error.get(field)?.as_f64()?))
}

/// Converts seconds to a wait of at most `MAX_WAIT`; `None` if negative or not finite.
fn capped(seconds: f64) -> Option<Duration> {
    let is_wait = seconds.is_finite() && seconds >= 0.0;
    is_wait.then(|| Duration::from_secs_f64(seconds.min(MAX_WAIT.as_secs_f64())))
}

/// Matches the waits in error messages: `try again in 1h2m3.5s`, `resets in 44 minutes`, `retry after 20ms`.
static SAID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let unit = r"(?:hours?|hrs?|h|minutes?|mins?|milliseconds?|ms|m|seconds?|secs?|s)";
    Regex::new(&format!(
        concat!(
            r"(?i)\b(?:try again|retry|retrying|resets?|reset|available again)\s+(?:in|after)\s+",
            r"((?:\d+(?:\.\d+)?\s*{unit}[\s,]*(?:and\s+)?)+)"
        ),
        unit = unit
    ))
    .ok()
});
static PART: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)(\d+(?:\.\d+)?)\s*([a-z]+)").ok());

/// The wait stated in an error message.
pub(super) fn in_text(text: &str) -> Option<Duration> {
    in_units(SAID.as_ref()?.captures(text)?.get(1)?.as_str())
}

/// The sum of parts with units, as `6m0s`. `None` without a part.
pub(super) fn in_units(text: &str) -> Option<Duration> {
    let mut seconds = None;
    for part in PART.as_ref()?.captures_iter(text) {
        let number: f64 = part.get(1)?.as_str().parse().ok()?;
        let unit = part.get(2)?.as_str().to_ascii_lowercase();
        let part = number
            * match unit.as_str() {
                unit if unit.starts_with("ms") || unit.starts_with("milli") => 0.001,
                unit if unit.starts_with('h') => 3_600.0,
                unit if unit.starts_with('m') => 60.0,
                _ => 1.0,
            };
        seconds = Some(seconds.unwrap_or(0.0) + part);
    }
    capped(seconds?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(headers: &[(&'static str, &str)]) -> Option<Duration> {
        read(&headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
    }

    #[test]
    fn a_wait_is_read_from_a_sentence() {
        let said = [
            ("Rate limit reached for x. Please try again in 6m0s. Visit y", 360_000),
            ("Please try again in 1h2m3.5s.", 3_723_500),
            ("limit reached, retry after 20ms", 20),
            ("Your limit resets in 44 minutes and 10 seconds, sorry", 2_650_000),
            ("Try again in 900 hours", 24 * 3_600_000),
        ];
        for (text, ms) in said {
            assert_eq!(in_text(text), Some(Duration::from_millis(ms)), "{text}");
        }
        let body = br#"{"error": {"type": "usage_limit_reached", "resets_in_seconds": 2640.5}}"#;
        assert_eq!(in_body(body), Some(Duration::from_millis(2_640_500)));
        assert_eq!((in_body(b"<html>"), in_body(b"{}"), in_body(b"[7]")), (None, None, None));
        for text in ["try again later", "in 5 minutes", "try again in a moment", ""] {
            assert_eq!(in_text(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_milliseconds_and_dates_are_read_and_capped() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(wait(&[("retry-after", "20")]), Some(Duration::from_secs(20)));
        assert_eq!(wait(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(wait(&[("retry-after", "9"), ("retry-after-ms", "1500")]), Some(Duration::from_millis(1500)));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:51:07 GMT"), date]), Some(Duration::from_secs(90)));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), date]), Some(Duration::ZERO));
        assert_eq!(wait(&[("retry-after", "Sat, 06 Nov 2094 08:00:00 GMT"), date]), Some(MAX_WAIT));
        assert_eq!(wait(&[("retry-after", "9e30")]), Some(MAX_WAIT));
        for nothing in [&[("retry-after", "soon")][..], &[("retry-after", "-1")], &[("retry-after", "NaN")], &[date]] {
            assert_eq!(wait(nothing), None);
        }
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:51:07 GMT")]), None);
    }
}
