//! Random cron lines against Python's cronsim. Skipped if that is not installed: `pip install cronsim`, with
//! `CRONSIM_PYTHON` for an interpreter other than `python3`. `CRONSIM_LINES=1000` is the whole comparison, which takes
//! most of an hour; docs/design/schedules.md lists its deviations.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use chrono::{DateTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use longhaul_domain::schedule::cron::Cron;

const ANSWERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/cronsim/answers.py");
const ZONES: [Tz; 20] = [
    Tz::UTC,
    Tz::Europe__Berlin,
    Tz::Europe__London,
    Tz::Europe__Dublin,
    Tz::America__New_York,
    Tz::America__Sao_Paulo,
    Tz::America__St_Johns,
    Tz::America__Havana,
    Tz::America__Santiago,
    Tz::Africa__Cairo,
    Tz::Africa__Casablanca,
    Tz::Asia__Beirut,
    Tz::Asia__Kolkata,
    Tz::Asia__Kathmandu,
    Tz::Asia__Tokyo,
    Tz::Australia__Sydney,
    Tz::Australia__Lord_Howe,
    Tz::Pacific__Auckland,
    Tz::America__Nuuk,
    Tz::Pacific__Apia,
];
/// Ticks in five years from which on a line is compared in full in one zone only, and in the others around the changes
/// of their clocks.
const MANY: usize = 5_000;

/// xorshift64*: the same lines in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as u32 % end
    }

    fn line(&mut self) -> String {
        const MONTHS: [&str; 12] = ["jan", "FEB", "Mar", "apr", "MAY", "jun", "JUL", "aug", "SEP", "oct", "nov", "DEC"];
        const DAYS: [&str; 7] = ["sun", "MON", "Tue", "wed", "THU", "fri", "SAT"];
        // Most lines tick a few times a day, as those of people do.
        let minute = self.field(0..=59, 2, &[]);
        let hour = self.field(0..=23, 12, &[]);
        let day = self.field(1..=31, 45, &[]);
        let month = self.field(1..=12, 50, &MONTHS);
        format!("{minute} {hour} {day} {month} {}", self.field(0..=7, 50, &DAYS))
    }

    fn field(&mut self, range: std::ops::RangeInclusive<u32>, stars: u32, names: &[&str]) -> String {
        if self.below(100) < stars {
            return "*".into();
        }
        let (first, last) = (*range.start(), *range.end());
        let terms = [1, 1, 1, 2, 3][self.below(5) as usize];
        let terms: Vec<String> = (0..terms).map(|_| self.term(first, last, names)).collect();
        terms.join(",")
    }

    fn term(&mut self, first: u32, last: u32, names: &[&str]) -> String {
        let value = |random: &mut Self, low: u32| {
            let value = low + random.below(last - low + 1);
            match names.get((value - first) as usize) {
                Some(name) if random.below(3) == 0 => ((*name).to_owned(), value),
                _ => (value.to_string(), value),
            }
        };
        let (one, low) = value(self, first);
        match self.below(12) {
            0..=6 => one,
            7 | 8 => format!("{one}-{}", value(self, low).0),
            9 => format!("{one}-{}/{}", value(self, low).0, 1 + self.below(last)),
            10 => format!("{one}/{}", 1 + self.below(last)),
            _ => format!("*/{}", 2 + self.below(last)),
        }
    }
}

type Span = (DateTime<Utc>, DateTime<Utc>);

fn ticks(cron: &Cron, zone: Tz, (start, end): Span) -> impl Iterator<Item = DateTime<Utc>> {
    let next = move |at: &DateTime<Utc>| cron.next_after(*at, zone);
    std::iter::successors(next(&start), next).take_while(move |tick| *tick < end)
}

/// A day before and after each change of the clocks.
fn around_changes(zone: Tz, (start, end): Span) -> Vec<Span> {
    let offset = |at: DateTime<Utc>| zone.offset_from_utc_datetime(&at.naive_utc()).fix();
    let days = std::iter::successors(Some(start), |at| Some(*at + TimeDelta::days(1))).take_while(|at| *at < end);
    days.filter(|at| offset(*at) != offset(*at + TimeDelta::days(1)))
        .map(|at| (at - TimeDelta::days(1), at + TimeDelta::days(2)))
        .collect()
}

/// Queries for the lines in every zone: line, zone and stretches of time.
fn queries(lines: usize) -> Vec<(String, Tz, Vec<Span>)> {
    let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let years = (at("2024-01-01T00:00:00Z"), at("2029-01-01T00:00:00Z"));
    let mut random = Random(0x5eed);
    let mut queries = Vec::new();
    for number in 0..lines {
        let line = random.line();
        let cron = Cron::parse(&line);
        let is_dense = cron.is_ok_and(|cron| ticks(&cron, Tz::UTC, years).nth(MANY).is_some());
        for (place, zone) in ZONES.into_iter().enumerate() {
            let spans =
                if is_dense && place != number % ZONES.len() { around_changes(zone, years) } else { vec![years] };
            queries.push((line.clone(), zone, spans));
        }
    }
    queries
}

/// Ticks in the order of the queries; `None` for a refused line.
fn answers(python: &str, queries: &[(String, Tz, Vec<Span>)], mut each: impl FnMut(usize, Option<Vec<i64>>)) {
    let mut child = Command::new(python).arg(ANSWERS).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = queries
        .iter()
        .map(|(line, zone, spans)| {
            let bounds: Vec<String> =
                spans.iter().map(|(start, end)| format!("\t{}\t{}", start.timestamp(), end.timestamp())).collect();
            format!("{line}\t{}{}\n", zone.name(), bounds.concat())
        })
        .collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    for (number, line) in BufReader::new(child.stdout.take().unwrap()).lines().enumerate() {
        let line = line.unwrap();
        let found = line.split_whitespace().map(str::parse).collect::<Result<Vec<i64>, _>>();
        each(number, found.ok());
    }
    writer.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
}

/// True if a tick that only one of the two has is of a kind that ADR 52 lists.
fn is_listed(zone: Tz, tick: i64) -> bool {
    let offset = |at: i64| zone.offset_from_utc_datetime(&DateTime::from_timestamp(at, 0).unwrap().naive_utc()).fix();
    let changes_by = |from: i64, to: i64| offset(to).local_minus_utc() - offset(from).local_minus_utc();
    let date = |at: i64| DateTime::from_timestamp(at, 0).unwrap().with_timezone(&zone).date_naive();
    // On days that begin late, cronsim ticks at midnight, or leaves out the first hour.
    let mut seconds = (tick - 3_600..=tick).step_by(60);
    let begins_late = seconds.any(|at| changes_by(at - 1, at) > 0 && date(at - 1) != date(at));
    // It loses minutes after a change by half an hour.
    let by_half = (tick - 86_400..tick + 86_400).step_by(1_800).any(|at| changes_by(at, at + 1_800).abs() == 1_800);
    begins_late || by_half
}

#[test]
#[expect(clippy::disallowed_methods, reason = "settings of the test run")]
fn random_lines_tick_as_in_cronsim() {
    let python = std::env::var("CRONSIM_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_cronsim = Command::new(&python).args(["-c", "import cronsim"]).stderr(Stdio::null()).status();
    if !has_cronsim.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {python} has no cronsim");
        return;
    }
    let lines = std::env::var("CRONSIM_LINES").map_or(10, |lines| lines.parse().unwrap());
    let queries = queries(lines);
    let (mut count, mut listed, mut wrong) = (0, 0, Vec::new());
    answers(&python, &queries, |number, theirs| {
        let (line, zone, spans) = &queries[number];
        let ours = Cron::parse(line).ok().map(|cron| {
            spans.iter().flat_map(|span| ticks(&cron, *zone, *span)).map(|tick| tick.timestamp()).collect::<Vec<i64>>()
        });
        let (Some(ours), Some(theirs)) = (&ours, &theirs) else {
            if ours.is_some() != theirs.is_some() {
                wrong.push(format!("{line}: only one refuses it"));
            }
            return;
        };
        count += theirs.len();
        if ours == theirs {
            return;
        }
        let sets = [ours, theirs].map(|ticks| ticks.iter().copied().collect::<BTreeSet<i64>>());
        let differing: Vec<i64> = sets[0].symmetric_difference(&sets[1]).copied().collect();
        let unlisted: Vec<&i64> = differing.iter().filter(|tick| !is_listed(*zone, **tick)).collect();
        listed += differing.len() - unlisted.len();
        if !unlisted.is_empty() {
            wrong.push(format!("{line} {zone}: {:?}", &unlisted[..unlisted.len().min(5)]));
        }
    });
    eprintln!("{} queries, {count} ticks of cronsim, {listed} listed deviations", queries.len());
    assert!(count > 0 && wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}
