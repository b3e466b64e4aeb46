//! Filters and functions of the templates: times, durations, amounts, links.

use chrono::{DateTime, Datelike, Days, Utc};
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_shared::visible;
use minijinja::{Environment, Value, value::ValueKind};
use url::form_urlencoded;

use crate::value::member;

pub(crate) fn register(environment: &mut Environment<'_>) {
    environment.add_filter("time", time);
    environment.add_filter("ago", ago);
    environment.add_filter("seconds", seconds);
    environment.add_filter("span", span);
    environment.add_filter("money", money);
    environment.add_filter("number", number);
    environment.add_filter("size", size);
    environment.add_filter("pretty", pretty);
    environment.add_filter("short", short);
    environment.add_filter("words", words);
    environment.add_filter("urlencode", segment);
    environment.add_function("between", between);
    environment.add_function("link", link);
    environment.add_function("midnight", midnight);
}

fn instant(value: &Value) -> Option<DateTime<Utc>> {
    value.as_str()?.parse().ok()
}

/// A time of day with its date, in UTC; the page's script shows it in the visitor's zone.
fn time(value: &Value) -> Value {
    element(value, "time")
}

/// The distance of a time from now, which the page's script keeps up to date.
fn ago(value: &Value) -> Value {
    element(value, "ago")
}

fn element(value: &Value, kind: &str) -> Value {
    let Some(at) = instant(value) else { return Value::from("") };
    let exact = at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let text = at.format("%Y-%m-%d %H:%M:%S");
    Value::from_safe_string(format!("<time datetime=\"{exact}\" data-{kind} title=\"{text} UTC\">{text}</time>"))
}

/// Seconds from one time to another; undefined if either is absent.
fn between(from: &Value, to: &Value) -> Value {
    match (instant(from), instant(to)) {
        (Some(from), Some(to)) => Value::from(seconds_between(from, to)),
        _ => Value::UNDEFINED,
    }
}

pub(crate) fn seconds_between(from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
    (to - from).to_std().map_or(0.0, |span| span.as_secs_f64())
}

/// Seconds of a time since the epoch, for arithmetic.
fn seconds(value: &Value) -> Value {
    instant(value).map_or(Value::UNDEFINED, |at| Value::from(at.timestamp_millis() as f64 / 1_000.0))
}

/// A duration in seconds as people write it.
fn span(value: &Value) -> String {
    f64::try_from(value.clone()).map_or(String::new(), readable_span)
}

pub(crate) fn readable_span(seconds: f64) -> String {
    let whole = seconds.round() as i64;
    match seconds {
        s if s < 0.001 => "0 ms".into(),
        s if s < 1.0 => format!("{:.0} ms", s * 1_000.0),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 60.0 => format!("{s:.0} s"),
        _ if whole < 3_600 => format!("{} m {:02} s", whole / 60, whole % 60),
        _ if whole < 86_400 => format!("{} h {:02} m", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// US dollars: cents for large sums, more digits for small ones.
fn money(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(0.0) => "$0".into(),
        Ok(usd) if usd.abs() < 0.01 => format!("${usd:.5}"),
        Ok(usd) if usd.abs() < 1.0 => format!("${usd:.3}"),
        Ok(usd) => format!("${}", grouped(&format!("{usd:.2}"))),
        Err(_) => "–".into(),
    }
}

fn number(value: &Value) -> String {
    if value.kind() == ValueKind::Number { grouped(&value.to_string()) } else { "–".into() }
}

/// Groups the digits before the point by three.
fn grouped(text: &str) -> String {
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, rest) = text.find('.').map_or((text, ""), |point| text.split_at(point));
    let digits = whole.len();
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (digits - i) % 3 == 0 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out + rest
}

/// A number of bytes.
fn size(value: &Value) -> String {
    let Ok(bytes) = f64::try_from(value.clone()) else { return "–".into() };
    match bytes {
        b if b < 1_024.0 => format!("{b:.0} B"),
        b if b < 1_048_576.0 => format!("{:.1} KiB", b / 1_024.0),
        b if b < 1_073_741_824.0 => format!("{:.1} MiB", b / 1_048_576.0),
        b => format!("{:.1} GiB", b / 1_073_741_824.0),
    }
}

/// JSON on several lines, in which nothing is hidden. A text that is JSON itself is laid out too.
fn pretty(value: &Value) -> String {
    visible::json(laid_out(value))
}

fn laid_out(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        let parsed: Option<serde_json::Value> = serde_json::from_str(text).ok();
        let laid_out = parsed.filter(|json| json.is_object() || json.is_array());
        return laid_out.and_then(|json| serde_json::to_string_pretty(&json).ok()).unwrap_or_else(|| text.to_owned());
    }
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The end of an id, which differs between ids of the same second.
fn short(id: &str) -> String {
    id.char_indices().rev().nth(7).map_or_else(|| id.to_owned(), |(at, _)| id[at..].to_owned())
}

/// A name of the API as words: `concurrency_limit` is "concurrency limit".
fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// A key as a segment of an address.
fn segment(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|b| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Midnight in UTC of the day so many days ago, or of the Monday of this week; the page's script changes links that
/// hold it to midnight in the visitor's zone.
fn midnight(back: &str) -> Value {
    let today = SystemClock::default().now().date_naive();
    let days = match back {
        "week" => Some(u64::from(today.weekday().num_days_from_monday())),
        days => days.parse().ok(),
    };
    let day = days.and_then(|days| today.checked_sub_days(Days::new(days)));
    day.map_or(Value::UNDEFINED, |day| Value::from(format!("{day}T00:00:00Z")))
}

/// The address `path` with the query `query` changed by `changes`; a change to none removes a parameter.
fn link(path: &str, query: &Value, changes: &Value) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    let keys = |of: &Value| -> Vec<String> {
        of.try_iter().map(|keys| keys.map(|key| key.to_string()).collect()).unwrap_or_default()
    };
    let changed = keys(changes);
    for key in keys(query).iter().filter(|key| !changed.contains(key)) {
        pairs.append_pair(key, &member(query, key).to_string());
    }
    for key in &changed {
        let value = member(changes, key);
        if !value.is_none() && !value.is_undefined() {
            pairs.append_pair(key, &value.to_string());
        }
    }
    let query = pairs.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;

    #[test]
    fn amounts_are_readable() {
        assert_eq!(readable_span(0.0123), "12 ms");
        assert_eq!(readable_span(90.0), "1 m 30 s");
        assert_eq!(readable_span(93_600.0), "1 d 2 h");
        assert_eq!(money(&Value::from(1_234.5)), "$1\u{202f}234.50");
        assert_eq!(money(&Value::from(0.0012)), "$0.00120");
        assert_eq!(number(&Value::from(1_234_567)), "1\u{202f}234\u{202f}567");
        assert_eq!(size(&Value::from(1_536)), "1.5 KiB");
    }

    #[test]
    fn link_changes_and_removes_parameters() {
        let query = context! { status => "FAILED", cursor => "x" };
        let changed = link("/e", &query, &context! { agent => "a&b", cursor => Value::from(()) });
        assert_eq!(changed, "/e?status=FAILED&agent=a%26b");
    }

    #[test]
    fn days_begin_at_midnight() {
        let at = |back| instant(&midnight(back)).unwrap();
        assert_eq!((at("0") - at("1")).num_hours(), 24);
        assert_eq!(at("week").weekday(), chrono::Weekday::Mon);
        assert!((0..7).contains(&(at("0") - at("week")).num_days()));
        assert!(midnight("yesterday").is_undefined());
    }

    #[test]
    fn key_becomes_one_segment() {
        assert_eq!(segment("a/b?c é"), "a%2Fb%3Fc%20%C3%A9");
    }

    #[test]
    fn time_that_is_none_shows_nothing() {
        assert_eq!(time(&Value::from("<b>")).to_string(), "");
        assert!(ago(&Value::from("2026-01-02T03:04:05Z")).to_string().contains("data-ago"));
    }
}
