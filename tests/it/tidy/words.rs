//! Comments, texts of interfaces, names of tests and duties, and the columns of comments and prose.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::{root, rust_pieces, texts};

/// Maximum columns of a line of code, comment or prose.
const MAX_COLUMNS: usize = 120;
/// A migration with longer lines, which can never change.
const APPLIED: &str = "migrations/20261123211011_contract.sql";
/// Maximum words of a test's name.
const MAX_NAME_WORDS: usize = 9;
/// Maximum share of comments that open with one of [`OPENERS`], in percent.
const MAX_OPENERS_PERCENT: usize = 3;
/// First words of noun clauses, which leave a comment without a subject and a verb.
const OPENERS: [&str; 6] = ["What", "Who", "Whose", "Whom", "How", "Whether"];
/// Further question words, which open no text of an interface.
const QUESTIONS: [&str; 5] = ["Where", "When", "Which", "Why", "Whatever"];
/// Pronouns for people, misplaced in a text about processes.
const PEOPLE: [&str; 5] = ["nobody", "whoever", "who was", "somebody", "anybody"];

/// Pieces of an SQL source: the length of each in bytes, and if it is a comment.
fn sql_pieces(source: &str) -> Vec<(usize, bool)> {
    let mut pieces = Vec::new();
    let mut rest = source;
    while !rest.is_empty() {
        let quoted = rest.strip_prefix('\'').map(|text| text.find('\'').map_or(rest.len(), |end| end + 2));
        let piece = if rest.starts_with("--") {
            (rest.find('\n').unwrap_or(rest.len()), true)
        } else {
            (quoted.or_else(|| rest.chars().next().map(char::len_utf8)).unwrap_or(1), false)
        };
        pieces.push(piece);
        rest = &rest[piece.0..];
    }
    pieces
}

/// Consecutive lines of comment.
#[derive(Debug, PartialEq)]
struct Comment {
    /// Line numbers, from 1.
    lines: RangeInclusive<usize>,
    /// The lines without their markers, joined by spaces.
    text: String,
}

impl Comment {
    fn opens_without_subject(&self) -> bool {
        let first = self.text.split(|c: char| !c.is_alphanumeric()).next();
        first.is_some_and(|word| OPENERS.contains(&word))
    }
}

/// The comments of a source. Comments that stand alone on consecutive lines are one.
fn comments(source: &str, pieces: Vec<(usize, bool)>) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let (mut at, mut line, mut is_last_alone) = (0, 1, false);
    for (length, is_comment) in pieces {
        let (before, rest) = source.split_at(at);
        let last_line = line + rest[..length].matches('\n').count();
        if is_comment {
            let is_alone = before.rsplit('\n').next().is_none_or(|code| code.trim().is_empty());
            let text = rest[..length].lines().map(unmarked).collect::<Vec<_>>().join(" ");
            match found.last_mut() {
                Some(last) if is_alone && is_last_alone && last.lines.end() + 1 == line => {
                    last.lines = *last.lines.start()..=last_line;
                    last.text = format!("{} {text}", last.text).trim().to_owned();
                }
                Some(_) | None => found.push(Comment { lines: line..=last_line, text: text.trim().to_owned() }),
            }
            is_last_alone = is_alone;
        }
        at += length;
        line = last_line;
    }
    found
}

/// A line of comment without its marker.
fn unmarked(line: &str) -> &str {
    let line = line.trim();
    let text = ["///", "//!", "//", "--", "/**", "/*!", "/*"].iter().find_map(|marker| line.strip_prefix(marker));
    text.unwrap_or(line).trim_end_matches("*/").trim()
}

/// The first of [`PEOPLE`] among the words of a text.
fn people_word(text: &str) -> Option<&'static str> {
    let words: Vec<_> = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let words = format!(" {} ", words.join(" ").to_lowercase());
    PEOPLE.into_iter().find(|word| words.contains(&format!(" {word} ")))
}

/// Returns true if a text of an interface neither opens with a question word nor names people for processes.
fn is_plain(text: &str) -> bool {
    let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    !OPENERS.contains(&first) && !QUESTIONS.contains(&first) && people_word(text).is_none()
}

/// Adds the descriptions and summaries of a document, each with its place.
fn describe(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    let below = |name: &dyn std::fmt::Display| format!("{place}/{name}");
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let (Some(text), "description" | "summary") = (member.as_str(), name.as_str()) {
                    found.push((below(name), text.to_owned()));
                }
                describe(member, &below(name), found);
            }
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(at, item)| describe(item, &below(&at), found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Names of the sweep's duties.
fn duties() -> Vec<String> {
    let source = std::fs::read_to_string(root().join("crates/worker/src/runtime/maintenance/sweep.rs")).unwrap();
    let (_, list) = source.split_once("static DUTIES").unwrap();
    let list = list.split("\n];").next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Names of the functions that follow a test attribute.
fn test_names(source: &str) -> Vec<&str> {
    let mut lines = source.lines().map(str::trim);
    let mut found = Vec::new();
    while lines.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
        let name =
            lines.find_map(|line| line.split_once("fn ")?.1.split(|c: char| !(c.is_alphanumeric() || c == '_')).next());
        found.extend(name);
    }
    found
}

/// Sources whose comments are held to the rules, without recorded fixtures.
fn commented_sources() -> Vec<(String, String, Vec<Comment>)> {
    let folders = ["crates", "tests", "model", "migrations"];
    let texts = folders.iter().flat_map(|folder| texts(folder, &["rs", "sql"]));
    texts
        .filter(|(path, _)| !path.contains("/fixtures/"))
        .map(|(path, text)| {
            let pieces = if path.ends_with(".sql") { sql_pieces(&text) } else { rust_pieces(&text) };
            let comments = comments(&text, pieces);
            (path, text, comments)
        })
        .collect()
}

#[test]
fn comments_have_a_subject_and_no_people() {
    let (mut count, mut opened, mut people) = (0, Vec::new(), Vec::new());
    for (path, _, comments) in commented_sources() {
        count += comments.len();
        for comment in comments {
            let place = format!("{path}:{}: {}", comment.lines.start(), comment.text);
            if let Some(word) = people_word(&comment.text) {
                people.push(format!("`{word}` in {place}"));
            }
            if comment.opens_without_subject() {
                opened.push(place);
            }
        }
    }
    assert!(count > 1_000, "only {count} comments found");
    assert!(people.is_empty(), "comments name people for processes:\n{}", people.join("\n"));
    let is_few = opened.len() * 100 <= count * MAX_OPENERS_PERCENT;
    assert!(is_few, "{} of {count} comments open with a noun clause:\n{}", opened.len(), opened.join("\n"));
}

#[test]
fn descriptions_help_and_duties_are_plain() {
    let mut texts = Vec::new();
    for path in ["docs/openapi.json", "docs/longhaul.schema.json"] {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        describe(&serde_json::from_str(&text).unwrap(), path, &mut texts);
    }
    assert!(texts.len() > 2_000, "only {} descriptions found", texts.len());
    // The help of a command is the comment of its arguments.
    for (path, _, comments) in commented_sources() {
        if path.starts_with("crates/cli/src/") || path.starts_with("crates/command/src/") {
            texts.extend(
                comments.into_iter().map(|comment| (format!("{path}:{}", comment.lines.start()), comment.text)),
            );
        }
    }
    let duties = duties();
    assert!(duties.len() > 30, "{duties:?}");
    texts.extend(duties.into_iter().map(|name| ("a duty of the sweep".to_owned(), name)));
    texts.retain(|(_, text)| !is_plain(text));
    let texts: Vec<_> = texts.iter().map(|(place, text)| format!("{place}: {text}")).collect();
    assert!(texts.is_empty(), "texts open with a question word or name people:\n{}", texts.join("\n"));
}

#[test]
fn test_names_are_short_and_name_no_people() {
    let mut count = 0;
    for (path, source, _) in commented_sources() {
        for name in test_names(&source) {
            count += 1;
            assert!(name.split('_').count() <= MAX_NAME_WORDS, "{path}: {name} has over {MAX_NAME_WORDS} words");
            assert_eq!(people_word(name), None, "{path}: {name}");
        }
    }
    assert!(count > 500, "only {count} tests found");
}

#[test]
fn code_and_prose_fit_the_columns() {
    let mut wide = Vec::new();
    let mut check = |path: &str, number: usize, line: &str| {
        let is_excepted = line.starts_with('|') || line.contains("://") || line.contains("](");
        if line.chars().count() > MAX_COLUMNS && !is_excepted {
            wide.push(format!("{path}:{number}: {line}"));
        }
    };
    for (path, source, _) in commented_sources() {
        if path != APPLIED {
            (1..).zip(source.lines()).for_each(|(number, line)| check(&path, number, line));
        }
    }
    for (path, text) in texts("", &["md"]) {
        if path.contains("/fixtures/") {
            continue;
        }
        let mut is_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code {
                check(&path, number, line);
            }
        }
    }
    assert!(wide.is_empty(), "lines over {MAX_COLUMNS} columns:\n{}", wide.join("\n"));
}

#[test]
fn scanner_tells_comments_from_literals() {
    let source = r##"
        //! Head,
        //! two lines.
        let a = "// no \" /* no"; // Trailing.
        // Another, because code stands before the last.
        let b = (r#"// "no" "#, br"\", c"/*", '"', '\'', '\u{2f}', b'/');
        fn c<'a>(r#in: &'a str, s: &'static str) {} /* One /* nested */ comment
        on two lines */
        let d = "/*
            // no
        "; /// Doc.
    "##;
    let found = comments(source, rust_pieces(source));
    let expected = [
        (2..=3, "Head, two lines."),
        (4..=4, "Trailing."),
        (5..=5, "Another, because code stands before the last."),
        (7..=8, "One /* nested */ comment on two lines"),
        (11..=11, "Doc."),
    ];
    assert_eq!(found, expected.map(|(lines, text)| Comment { lines, text: text.to_owned() }));
    let source = "select '--no' -- One.\n-- Two's\n-- lines.\n";
    let sql = comments(source, sql_pieces(source));
    let expected = [(1..=1, "One."), (2..=3, "Two's lines.")];
    assert_eq!(sql, expected.map(|(lines, text)| Comment { lines, text: text.to_owned() }));
}

#[test]
fn words_are_found_whole() {
    let comment = |text: &str| Comment { lines: 1..=1, text: text.to_owned() };
    assert!(comment("What waits.").opens_without_subject() && comment("How.").opens_without_subject());
    assert!(!comment("However it ends.").opens_without_subject() && !comment("The worker.").opens_without_subject());
    assert_eq!(people_word("Nobody waits."), Some("nobody"));
    assert_eq!(people_word("the worker who was killed"), Some("who was"));
    assert_eq!(people_word("event_of_who_was_killed"), Some("who was"));
    assert_eq!(people_word("nobodys who wasted"), None);
    assert!(is_plain("end overdue executions") && is_plain("Time when it ended."));
    assert!(!is_plain("When absent: 1.") && !is_plain("park the runs that nobody serves") && !is_plain("Of anybody"));
    let source = "
        #[tokio::test(flavor = \"multi_thread\")]
        async fn one_two() {}
        fn helper() {}
        #[test]
        #[should_panic]
        fn three() {}
    ";
    assert_eq!(test_names(source), ["one_two", "three"]);
}
