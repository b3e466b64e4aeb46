//! Times as people write them: `2026-12-01T09:00:00Z`, `2026-12-01`, `2026-12-01 9:00`, `tomorrow 9:00`, `9:00`, `1d`.
//!
//! Without an offset, a time is of this machine's zone.

use chrono::{DateTime, Days, Local, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone, Utc};

const EXAMPLES: &str = "such as 2026-12-01T09:00:00Z, 2026-12-01, \"tomorrow 9:00\", 9:00 or 1d";

/// A time that comes: `1d` is in a day.
///
/// # Errors
/// The text is no time.
pub fn coming(text: &str) -> Result<DateTime<Utc>, String> {
    read(text, Local::now(), 1)
}

/// Whole seconds until a time that comes, at least 1.
///
/// # Errors
/// The text is no time, or the time has passed.
pub fn until(text: &str) -> Result<i64, String> {
    let now = Local::now();
    let seconds = (read(text, now, 1)? - now.to_utc()).num_seconds();
    if seconds > 0 { Ok(seconds) } else { Err(format!("`{text}` has passed")) }
}

/// A time that was: `1d` is a day ago.
///
/// # Errors
/// The text is no time.
pub fn past(text: &str) -> Result<DateTime<Utc>, String> {
    read(text, Local::now(), -1)
}

fn read<Tz: TimeZone>(text: &str, now: DateTime<Tz>, sign: i32) -> Result<DateTime<Utc>, String> {
    let given = text.trim();
    if let Ok(at) = DateTime::parse_from_rfc3339(given) {
        return Ok(at.to_utc());
    }
    let mut words = given.to_lowercase();
    if words.starts_with(|c: char| c.is_ascii_digit()) {
        words = words.replacen('t', " ", 1);
    }
    if words == "now" {
        return Ok(now.to_utc());
    }
    if let Some(span) = span(&words) {
        return now.to_utc().checked_add_signed(span * sign).ok_or_else(|| format!("`{text}` is too far"));
    }
    let wrong = || format!("`{text}` is not a time, {EXAMPLES}");
    let at = local(&words, now.naive_local()).ok_or_else(wrong)?;
    match now.timezone().from_local_datetime(&at) {
        LocalResult::Single(at) | LocalResult::Ambiguous(at, _) => Ok(at.to_utc()),
        LocalResult::None => Err(format!("`{text}` does not exist here: the clocks go forward then")),
    }
}

/// `90s`, `30m`, `2h`, `1d`, `1w`, also with `in` before or `ago` after it.
fn span(words: &str) -> Option<TimeDelta> {
    let words = words.strip_prefix("in ").or_else(|| words.strip_suffix(" ago")).unwrap_or(words).trim();
    let unit = words.chars().last()?;
    let number: i64 = words[..words.len() - unit.len_utf8()].trim().parse().ok()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    (number >= 0).then_some(())?;
    TimeDelta::try_seconds(number.checked_mul(seconds)?)
}

/// A day, a time of day, or both.
fn local(words: &str, now: NaiveDateTime) -> Option<NaiveDateTime> {
    let (day, time) = match words.rsplit_once(' ') {
        Some((day, time)) => (day, Some(time)),
        None if day_of(words, now).is_some() => (words, None),
        None => ("today", Some(words)),
    };
    let time = match time {
        Some(time) => time_of(time.trim())?,
        None => NaiveTime::MIN,
    };
    Some(day_of(day.trim(), now)?.and_time(time))
}

fn day_of(word: &str, now: NaiveDateTime) -> Option<NaiveDate> {
    match word {
        "today" => Some(now.date()),
        "tomorrow" => now.date().checked_add_days(Days::new(1)),
        "yesterday" => now.date().checked_sub_days(Days::new(1)),
        _ => NaiveDate::parse_from_str(word, "%Y-%m-%d").ok(),
    }
}

fn time_of(word: &str) -> Option<NaiveTime> {
    ["%H:%M:%S", "%H:%M"].iter().find_map(|format| NaiveTime::parse_from_str(word, format).ok())
}

#[cfg(test)]
mod tests {
    use chrono::FixedOffset;

    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let zone = FixedOffset::east_opt(3_600).unwrap();
        let now = zone.with_ymd_and_hms(2026, 11, 28, 10, 30, 0).unwrap();
        for (text, sign, expected) in [
            ("2026-12-01T09:00:00Z", 1, "2026-12-01T09:00:00"),
            ("2026-12-01T09:00:00+02:00", 1, "2026-12-01T07:00:00"),
            ("2026-11-26", -1, "2026-11-25T23:00:00"),
            ("2026-11-26 9:05", -1, "2026-11-26T08:05:00"),
            ("2026-11-26T09:05:07", -1, "2026-11-26T08:05:07"),
            ("tomorrow 9:00", 1, "2026-11-29T08:00:00"),
            ("Tomorrow", 1, "2026-11-28T23:00:00"),
            ("today", -1, "2026-11-27T23:00:00"),
            ("yesterday 18:00", -1, "2026-11-27T17:00:00"),
            ("9:00", -1, "2026-11-28T08:00:00"),
            ("now", 1, "2026-11-28T09:30:00"),
            ("1d", -1, "2026-11-27T09:30:00"),
            ("1d", 1, "2026-11-29T09:30:00"),
            ("in 2h", 1, "2026-11-28T11:30:00"),
            ("90m ago", -1, "2026-11-28T08:00:00"),
            ("2w", -1, "2026-11-14T09:30:00"),
        ] {
            let at = read(text, now, sign).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(at.format("%Y-%m-%dT%H:%M:%S").to_string(), expected, "{text}");
        }
        assert_eq!(until("2h"), Ok(7_200));
        assert!(until("0s").is_err() && until("2020-01-01").is_err());
        for wrong in ["", "soon", "2026-13-01", "25:00", "1y", "-1d", "tomorrow noon", "d", "99999999999999999d"] {
            assert!(read(wrong, now, 1).is_err(), "{wrong}");
        }
    }
}
