//! How long an endpoint asks us to wait.

use std::time::Duration;

use chrono::DateTime;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// No endpoint makes an execution wait longer than this (docs/failures.md).
const MAX_WAIT: Duration = Duration::from_hours(24);

/// Reads `retry-after-ms`, then `Retry-After` as seconds or as a date. A date counts from the response's own `Date`, so that
/// neither clock needs to be right; without one it is ignored.
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
    // A date that has passed asks for no wait.
    Some((until - now).to_std().unwrap_or(Duration::ZERO).min(MAX_WAIT))
}

fn seconds(text: &str, divisor: f64) -> Option<Duration> {
    let number: f64 = text.parse().ok()?;
    if !number.is_finite() || number < 0.0 {
        return None;
    }
    Some(Duration::from_secs_f64((number / divisor).min(MAX_WAIT.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(headers: &[(&'static str, &str)]) -> Option<Duration> {
        read(&headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
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
