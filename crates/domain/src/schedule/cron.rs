//! Cron lines of five fields, as Python's cronsim reads them, and their ticks in a time zone.
//!
//! Written here because croner 3.0 differs from cronsim in one of eight random lines (docs/design/schedules.md).

use chrono::{DateTime, Datelike, Days, Duration, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Utc};
use chrono_tz::Tz;

/// Longest line, in bytes.
pub const MAX_CRON_BYTES: usize = 200;
/// More than clocks go back by.
const CHANGE: Duration = Duration::hours(4);
/// Years that are searched for a tick: 29 February on one day of the week comes every 28 years, or 40.
const SEARCHED_YEARS: i32 = 50;
const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
/// Most days of each month.
const MONTH_DAYS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Reason why a line is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCron {
    #[error("a cron line has five fields: minute, hour, day of month, month, day of week")]
    Fields,
    #[error("a cron line has at most {MAX_CRON_BYTES} bytes")]
    TooLong,
    #[error("the field `{name}` is not valid: `{text}`")]
    Field { name: &'static str, text: String },
    #[error("no month of the line has such a day")]
    NoSuchDay,
}

/// One field: its name, its range and the names of its values.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", first: 0, last: 59, names: &[] },
    Field { name: "hour", first: 0, last: 23, names: &[] },
    Field { name: "day of month", first: 1, last: 31, names: &[] },
    Field { name: "month", first: 1, last: 12, names: &MONTHS },
    // 7 is Sunday as well.
    Field { name: "day of week", first: 0, last: 7, names: &WEEKDAYS },
];

/// A parsed line. Each set has a bit per value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if a day must match both fields of days; one is enough if both are restricted.
    needs_both_days: bool,
    /// True if neither minute nor hour begins with a star: the ticks are times of the day, which every day has once,
    /// whatever the clocks do.
    has_fixed_times: bool,
}

impl Cron {
    /// # Errors
    /// The line is not valid, or never comes true.
    pub fn parse(line: &str) -> Result<Self, InvalidCron> {
        if line.len() > MAX_CRON_BYTES {
            return Err(InvalidCron::TooLong);
        }
        let texts: Vec<String> = line.split_ascii_whitespace().map(str::to_ascii_uppercase).collect();
        let [minute, hour, day, month, weekday] = texts.as_slice() else { return Err(InvalidCron::Fields) };
        let read = |place: usize, text: &str| {
            let field = &FIELDS[place];
            field.set(text).ok_or_else(|| InvalidCron::Field { name: field.name, text: text.to_owned() })
        };
        let cron = Self {
            minutes: read(0, minute)?,
            hours: read(1, hour)?,
            days: read(2, day)?,
            months: read(3, month)?,
            weekdays: read(4, weekday)?,
            needs_both_days: day.starts_with('*') || weekday.starts_with('*'),
            has_fixed_times: !minute.starts_with('*') && !hour.starts_with('*'),
        };
        let longest = (1..=12).filter(|&month| has(cron.months, month)).map(|month| MONTH_DAYS[month as usize - 1]);
        if cron.days.trailing_zeros() > longest.max().unwrap_or_default() {
            return Err(InvalidCron::NoSuchDay);
        }
        Ok(cron)
    }

    /// The first tick after `after`; `None` if there is none within fifty years.
    #[must_use]
    pub fn next_after(&self, after: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        let local = after.with_timezone(&zone).naive_local();
        // From before it: clocks that go back show times again. For the same reason a later time may come first.
        let from = local - CHANGE;
        let mut found: Option<(NaiveDateTime, DateTime<Utc>)> = None;
        let mut day = from.date();
        while day.year() <= local.year() + SEARCHED_YEARS {
            for time in self.times_of_day(day).filter(|time| *time >= from) {
                if found.is_some_and(|(first, _)| time > first + CHANGE) {
                    break;
                }
                for tick in self.instants(time, zone).into_iter().flatten().filter(|tick| *tick > after) {
                    found = Some(found.map_or((time, tick), |(first, earliest)| (first, earliest.min(tick))));
                }
            }
            day = day.checked_add_days(Days::new(1))?;
            if let Some((_, tick)) = found.filter(|(first, _)| day.and_time(NaiveTime::MIN) > *first + CHANGE) {
                return Some(tick);
            }
        }
        found.map(|(_, tick)| tick)
    }

    /// The local times of a date at which it ticks, in order.
    fn times_of_day(&self, day: NaiveDate) -> impl Iterator<Item = NaiveDateTime> {
        let hours = if self.matches_day(day) { self.hours } else { 0 };
        let times = (0..24)
            .filter(move |&hour| has(hours, hour))
            .flat_map(|hour| (0..60).filter(|&minute| has(self.minutes, minute)).map(move |minute| (hour, minute)));
        times.filter_map(move |(hour, minute)| day.and_hms_opt(hour, minute, 0))
    }

    /// The instants of a tick at a local time. Clocks that go back show it twice, those that go forward not at all.
    fn instants(&self, local: NaiveDateTime, zone: Tz) -> [Option<DateTime<Utc>>; 2] {
        let found = zone.from_local_datetime(&local);
        let (first, last) = (found.earliest(), found.latest());
        match (first, self.has_fixed_times) {
            (Some(_), false) => [first, last].map(|tick| tick.map(|tick| tick.to_utc())),
            (Some(first), true) => [Some(first.to_utc()), None],
            (None, false) => [None, None],
            (None, true) => [end_of_gap(local, zone), None],
        }
    }

    fn matches_day(&self, day: NaiveDate) -> bool {
        let by_day = has(self.days, day.day());
        let weekday = day.weekday().num_days_from_sunday();
        let by_weekday = has(self.weekdays, weekday) || (weekday == 0 && has(self.weekdays, 7));
        let matches = if self.needs_both_days { by_day && by_weekday } else { by_day || by_weekday };
        matches && has(self.months, day.month())
    }
}

/// The first instant whose local time is after a time that clocks leave out: by an hour as a rule, by a day where a
/// country crosses the date line.
fn end_of_gap(local: NaiveDateTime, zone: Tz) -> Option<DateTime<Utc>> {
    let minutes = (1..=25 * 60).map(|minutes| local + Duration::minutes(minutes));
    minutes.filter_map(|local| zone.from_local_datetime(&local).earliest()).next().map(|tick| tick.to_utc())
}

fn has(set: u64, value: u32) -> bool {
    set & (1 << value) != 0
}

impl Field {
    /// Reads a list of terms; `None` if it is not valid.
    fn set(&self, text: &str) -> Option<u64> {
        text.split(',').map(|term| self.term(term)).try_fold(0, |set, term| Some(set | term?))
    }

    /// Reads `*`, a value or a range, each with or without a step.
    fn term(&self, text: &str) -> Option<u64> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(number(step).filter(|step| *step > 0)?)),
            None => (text, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.first, self.last),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            None => {
                let value = self.value(range)?;
                (value, value)
            }
        };
        // A step from a single value goes on to the end of the field, also from `5-5`: so it does in cronsim.
        let last = if step.is_some() && first == last { self.last } else { last };
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        (first <= last).then(|| (first..=last).step_by(step).fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| *name == text);
        let value = match named {
            Some(place) => u32::try_from(place).ok()? + self.first,
            None => number(text)?,
        };
        (self.first..=self.last).contains(&value).then_some(value)
    }
}

fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first ticks of a line after a time, as local times with their offset.
    fn ticks(line: &str, zone: Tz, after: &str, count: usize) -> Vec<String> {
        let cron = Cron::parse(line).unwrap();
        let mut at: DateTime<Utc> = after.parse().unwrap();
        (0..count)
            .map(|_| {
                at = cron.next_after(at, zone).unwrap();
                at.with_timezone(&zone).format("%Y-%m-%dT%H:%M%:z").to_string()
            })
            .collect()
    }

    #[test]
    fn fields_are_lists_of_ranges_steps_and_names() {
        let of = |line: &str| Cron::parse(line).unwrap();
        assert_eq!(of("0-59 0-23 1-31 1-12 0-7").minutes, of("* * * * *").minutes);
        assert_eq!(of("5,10-20/5,*/30 0 1 1 *").minutes, of("0,5,10,15,20,30 0 1 1 *").minutes);
        assert_eq!(of("0 0 * jan-Mar SUN").months, of("0 0 * 1,2,3 0").months);
        for from_fifty in ["50/3 0 1 1 *", "50-50/3 0 1 1 *"] {
            assert_eq!(of(from_fifty).minutes, of("50,53,56,59 0 1 1 *").minutes);
        }
    }

    #[test]
    fn invalid_lines_are_refused_by_field() {
        let refused = |line: &str| Cron::parse(line).unwrap_err().to_string();
        for line in ["", "* * * *", "* * * * * *", "@daily"] {
            assert_eq!(refused(line), InvalidCron::Fields.to_string(), "{line}");
        }
        let cases = [
            ("60 * * * *", "minute"),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day of month"),
            ("* * L * *", "day of month"),
            ("* * * 13 *", "month"),
            ("* * * * 8", "day of week"),
            ("*/0 * * * *", "minute"),
            ("5-1 * * * *", "minute"),
            ("1,,2 * * * *", "minute"),
            ("+1 * * * *", "minute"),
            ("* * * * MON#1", "day of week"),
            ("* FRI * * *", "hour"),
        ];
        for (line, field) in cases {
            assert!(refused(line).contains(&format!("`{field}`")), "{line}: {}", refused(line));
        }
        assert_eq!(Cron::parse("0 0 31 2,4 *"), Err(InvalidCron::NoSuchDay));
        assert_eq!(Cron::parse(&format!("{}* * * * *", " ".repeat(300))), Err(InvalidCron::TooLong));
    }

    #[test]
    fn restricted_fields_of_days_are_alternatives() {
        assert_eq!(
            ticks("0 0 13 * FRI", Tz::UTC, "2026-02-01T00:00:00Z", 3),
            ["2026-02-06T00:00+00:00", "2026-02-13T00:00+00:00", "2026-02-20T00:00+00:00"]
        );
        // A star with a step is a star: both must match.
        assert_eq!(ticks("0 0 */2 * FRI", Tz::UTC, "2026-02-01T00:00:00Z", 1), ["2026-02-13T00:00+00:00"]);
        assert_eq!(ticks("0 0 29 2 */8", Tz::UTC, "2026-02-01T00:00:00Z", 1), ["2032-02-29T00:00+00:00"]);
    }

    #[test]
    fn fixed_times_in_a_gap_fire_at_its_end() {
        // 2026-03-29, 02:00 to 03:00.
        assert_eq!(
            ticks("0,30 2 * * *", Tz::Europe__Berlin, "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]
        );
        assert_eq!(ticks("30 * 29 3 *", Tz::Europe__Berlin, "2026-03-29T00:30:00Z", 1), ["2026-03-29T03:30+02:00"]);
    }

    #[test]
    fn fixed_times_in_a_fold_fire_once() {
        // 2026-10-25, 03:00 to 02:00.
        assert_eq!(
            ticks("30 2 * * *", Tz::Europe__Berlin, "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]
        );
        assert_eq!(
            ticks("30 * * * *", Tz::Europe__Berlin, "2026-10-25T00:00:00Z", 3),
            ["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"]
        );
    }

    #[test]
    fn gap_at_midnight_belongs_to_its_day() {
        // 2026-04-24 begins at 01:00 in Cairo.
        assert_eq!(ticks("0 0 24 4 *", Tz::Africa__Cairo, "2026-04-20T00:00:00Z", 1), ["2026-04-24T01:00+03:00"]);
        // The fold there repeats 23:00 to 24:00 of the day before.
        assert_eq!(
            ticks("15,45 * 29 10 *", Tz::Africa__Cairo, "2026-10-29T20:30:00Z", 3),
            ["2026-10-29T23:45+03:00", "2026-10-29T23:15+02:00", "2026-10-29T23:45+02:00"]
        );
    }

    #[test]
    fn line_that_never_comes_true_has_no_tick() {
        let cron = Cron::parse("0 0 29 2 *").unwrap();
        assert!(cron.next_after("2096-03-01T00:00:00Z".parse().unwrap(), Tz::UTC).is_some());
        let never = Cron { weekdays: 0, ..cron };
        assert_eq!(never.next_after("2026-03-01T00:00:00Z".parse().unwrap(), Tz::UTC), None);
    }
}
