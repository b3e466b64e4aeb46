//! Reads what an endpoint's headers say of its limits: `x-ratelimit-*` as OpenAI and most gateways write them, and
//! `anthropic-ratelimit-*`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_queue::model_calls::{StatedLimit, StatedLimits};
use reqwest::header::{DATE, HeaderMap};

use super::retry_after;

/// Longest time until a limit is reset that counts.
const MAX_RESET: Duration = Duration::from_hours(24);

/// The limits of requests and tokens. Where input and output tokens are limited apart, those of which a smaller part
/// remains.
pub(super) fn read(headers: &HeaderMap) -> StatedLimits {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let now = text(DATE.as_str()).and_then(|date| DateTime::parse_from_rfc2822(date).ok()).map(|date| date.to_utc());
    let number = |name: &str| text(name)?.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let limit = |names: [String; 3]| {
        let [limit, remaining, reset] = names;
        let limit = number(&limit).filter(|limit| *limit > 0.0)?;
        let remaining = number(&remaining)?.min(limit);
        Some(StatedLimit { limit, remaining, reset: until(text(&reset)?, now)?.min(MAX_RESET) })
    };
    let common = |of: &str| limit(["limit", "remaining", "reset"].map(|what| format!("x-ratelimit-{what}-{of}")));
    let anthropic =
        |of: &str| limit(["limit", "remaining", "reset"].map(|what| format!("anthropic-ratelimit-{of}-{what}")));
    let tokens = ["tokens", "input-tokens", "output-tokens"].into_iter().filter_map(anthropic);
    let part = |of: &StatedLimit| of.remaining / of.limit;
    StatedLimits {
        requests: common("requests").or_else(|| anthropic("requests")),
        tokens: common("tokens").or_else(|| tokens.min_by(|one, other| part(one).total_cmp(&part(other)))),
    }
}

/// A time from now: seconds, `6m0s`, `20ms`, or a date.
fn until(text: &str, now: Option<DateTime<Utc>>) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    if let Ok(date) = DateTime::parse_from_rfc3339(text) {
        return Some((date.to_utc() - now?).to_std().unwrap_or_default());
    }
    retry_after::in_units(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(headers: &[(&'static str, &'static str)]) -> StatedLimits {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        read(&map)
    }

    #[test]
    fn limits_are_read_from_both_families_of_headers() {
        let open_ai = limits(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        let stated =
            |limit, remaining, seconds| Some(StatedLimit { limit, remaining, reset: Duration::from_secs_f64(seconds) });
        assert_eq!(open_ai.requests, stated(60.0, 59.0, 1.0));
        assert_eq!(open_ai.tokens, stated(150_000.0, 149_984.0, 360.0));
        let anthropic = limits(&[
            ("date", "Fri, 27 Nov 2026 12:00:00 GMT"),
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-27T12:00:30Z"),
            ("anthropic-ratelimit-input-tokens-limit", "1000"),
            ("anthropic-ratelimit-input-tokens-remaining", "900"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-27T12:00:06Z"),
            ("anthropic-ratelimit-output-tokens-limit", "100"),
            ("anthropic-ratelimit-output-tokens-remaining", "10"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-11-27T12:00:54Z"),
        ]);
        assert_eq!(anthropic.requests, stated(50.0, 0.0, 30.0));
        assert_eq!(anthropic.tokens, stated(100.0, 10.0, 54.0));
    }

    #[test]
    fn odd_limits_are_none() {
        for (limit, remaining, reset) in [("0", "0", "1s"), ("x", "1", "1s"), ("9", "-1", "1s"), ("9", "1", "soon")] {
            let found = limits(&[
                ("x-ratelimit-limit-tokens", limit),
                ("x-ratelimit-remaining-tokens", remaining),
                ("x-ratelimit-reset-tokens", reset),
            ]);
            assert_eq!(found, StatedLimits::default(), "{limit} {remaining} {reset}");
        }
        let most = limits(&[
            ("x-ratelimit-limit-tokens", "9"),
            ("x-ratelimit-remaining-tokens", "99"),
            ("x-ratelimit-reset-tokens", "1e9"),
        ]);
        let tokens = most.tokens.unwrap();
        assert!(tokens.remaining == 9.0 && tokens.reset == MAX_RESET);
    }
}
