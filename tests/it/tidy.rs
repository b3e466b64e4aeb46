//! Rules of the repository that no compiler checks.

use std::{
    collections::BTreeMap,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

/// Maximum columns of a line of comment or prose.
const MAX_COLUMNS: usize = 120;
/// Maximum words of a test's name.
const MAX_NAME_WORDS: usize = 9;
/// Maximum share of comments that open with one of [`OPENERS`], in percent.
const MAX_OPENERS_PERCENT: usize = 3;
/// First words of noun clauses, which leave a comment without a subject and a verb.
const OPENERS: [&str; 6] = ["What", "Who", "Whose", "Whom", "How", "Whether"];
/// Pronouns for people, misplaced in a text about processes.
const PEOPLE: [&str; 5] = ["nobody", "whoever", "who was", "somebody", "anybody"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn walk(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        if !path.is_dir() {
            found.push(path);
        } else if !["target", ".git", "node_modules"].iter().any(|skipped| path.ends_with(skipped)) {
            walk(&path, found);
        }
    }
}

fn sources(under: &str) -> Vec<(String, String)> {
    texts(under, &["rs"])
}

/// Paths in the repository and contents of the files below `under` that have one of these extensions.
fn texts(under: &str, extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(&root().join(under), &mut found);
    found.retain(|path| path.extension().is_some_and(|own| extensions.iter().any(|extension| own == *extension)));
    assert!(!found.is_empty(), "no {extensions:?} under {under}");
    found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// Fails if code outside of `allowed` names the crate `name`.
fn named_only_in(name: &str, allowed: &[&str]) {
    let uses = [format!("{name}::"), format!("use {name};"), format!("extern crate {name}")];
    for (path, text) in sources("crates") {
        let is_allowed = allowed.iter().any(|prefix| path.starts_with(prefix));
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let is_use = uses.iter().any(|needle| {
                line.match_indices(needle.as_str()).any(|(at, _)| {
                    !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':')
                })
            });
            assert!(is_allowed || !is_use, "{path} names {name}: {line}");
        }
    }
}

#[test]
fn layers_hold() {
    named_only_in("sqlx", &["crates/store/src", "crates/proof/src"]);
    // The configuration has a module of that name.
    named_only_in("redis", &["crates/queue/src", "crates/shared/src/config"]);
    named_only_in("apalis", &["crates/queue/src"]);
    named_only_in("apalis_core", &["crates/queue/src"]);
    named_only_in("axum", &["crates/api/src", "crates/testkit/src"]);
    named_only_in("clap", &["crates/cli/src", "crates/command/src", "crates/proof/src"]);
    named_only_in("comfy_table", &["crates/command/src"]);
    // Only tests and benchmarks make certificates and keep histograms.
    named_only_in("rcgen", &["crates/testkit/src"]);
    named_only_in("hdrhistogram", &["crates/proof/src"]);
    named_only_in("stateright", &[]);
    named_only_in("landlock", &["crates/sandbox/src/fence"]);
    named_only_in("seccompiler", &["crates/sandbox/src/fence"]);
}

/// Crates of the product with the crates that each may depend on. Dependencies run one way.
const EDGES: [(&str, &[&str]); 18] = [
    ("sdk", &[]),
    ("shared", &["sdk"]),
    ("contract", &["sdk", "shared"]),
    ("references", &["sdk", "shared"]),
    ("store", &["sdk", "shared", "contract"]),
    ("queue", &["shared"]),
    ("llm", &["sdk", "shared", "store", "queue"]),
    ("retrieval", &["shared", "store"]),
    ("tools", &["sdk", "shared", "retrieval"]),
    ("agent", &["sdk", "shared", "store", "queue", "references", "llm", "tools"]),
    ("worker", &["sdk", "shared", "contract", "store", "queue", "references", "llm", "retrieval", "tools", "agent"]),
    ("api", &["sdk", "shared", "contract", "store", "retrieval"]),
    ("sandbox", &[]),
    ("embedded", &[]),
    ("testkit", &["queue", "embedded"]),
    ("command", &["shared"]),
    ("proof", &["sdk", "shared", "store", "queue", "worker", "command", "embedded", "testkit"]),
    (
        "cli",
        &[
            "sdk",
            "shared",
            "contract",
            "store",
            "queue",
            "llm",
            "retrieval",
            "worker",
            "api",
            "sandbox",
            "command",
            "embedded",
            "proof",
        ],
    ),
];

#[test]
fn crates_depend_one_way() {
    let mut crates: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    crates.sort();
    let mut known: Vec<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(crates, known, "a crate without its place in EDGES");
    for (name, allowed) in EDGES {
        let manifest = fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        let named = manifest.lines().filter_map(|line| line.strip_prefix("longhaul-")?.split([' ', '.', '=']).next());
        for dependency in named {
            assert!(allowed.contains(&dependency), "crates/{name} depends on {dependency}");
        }
    }
}

/// OpenAPI keeps one schema per name: a second one would be described as the first.
#[test]
fn no_two_schemas_have_one_name() {
    let mut found = BTreeMap::new();
    for (path, text) in sources("crates") {
        let mut lines = text.lines();
        while lines.any(|line| line.contains("derive(") && line.contains("ToSchema")) {
            let (_, item) =
                lines.find_map(|line| line.split_once("struct ").or_else(|| line.split_once("enum "))).unwrap();
            let name = item.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned();
            if let Some(other) = found.insert(name.clone(), path.clone()) {
                panic!("{name} is a schema of {other} and of {path}");
            }
        }
    }
    assert!(found.len() > 50, "{found:?}");
}

/// The image holds no fakes and no benchmarks.
#[test]
fn proof_can_be_left_out_of_the_program() {
    let manifest = fs::read_to_string(root().join("crates/cli/Cargo.toml")).unwrap();
    assert!(manifest.contains("longhaul-proof = { workspace = true, optional = true }"), "{manifest}");
    let image = fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    assert!(image.contains("deploy/dist.sh --no-proof"), "{image}");
    for (name, allowed) in EDGES.iter().filter(|(name, _)| !["cli", "proof"].contains(name)) {
        assert!(!allowed.contains(&"proof") && !allowed.contains(&"testkit"), "crates/{name} would bring them in");
    }
}

#[test]
fn the_sandbox_knows_nothing_of_the_rest() {
    let manifest = fs::read_to_string(root().join("crates/sandbox/Cargo.toml")).unwrap();
    assert_eq!(manifest.matches("longhaul-").count(), 1, "more than its own name: {manifest}");
    for (path, text) in sources("crates/sandbox/src") {
        assert!(!text.contains("longhaul_"), "{path} names another crate of the product");
    }
}

#[test]
fn the_domain_is_pure() {
    let pure = ["crates/shared/src/domain", "crates/contract/src", "crates/references/src"];
    for (path, text) in pure.into_iter().flat_map(sources) {
        for forbidden in ["async fn", "tokio::", "crate::store", "crate::queue", "crate::config", "std::env"] {
            assert!(!text.contains(forbidden), "{path} holds {forbidden}");
        }
    }
}

#[test]
fn the_agent_loop_stays_one_page() {
    let text = fs::read_to_string(root().join("crates/agent/src/run.rs")).unwrap();
    assert!(text.lines().count() <= 120, "run.rs outgrew its page");
}

#[test]
fn files_named_in_the_architecture_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut files = Vec::new();
    for folder in ["crates", "model", "docs", "tests", "migrations", "deploy", "examples"] {
        walk(&root().join(folder), &mut files);
    }
    let mut seen = 0;
    for word in text.split('`').skip(1).step_by(2) {
        let is_file = word.ends_with(".rs") || word.ends_with(".sql") || word.ends_with(".md");
        if !is_file || word.contains(' ') {
            continue;
        }
        seen += 1;
        // `worker/src/…` is written without its `crates/`, and a bare name after its folder.
        assert!(files.iter().any(|path| path.ends_with(word)), "ARCHITECTURE.md names {word}, which does not exist");
    }
    assert!(seen > 20, "only {seen} files found in ARCHITECTURE.md");
}

#[test]
fn no_file_is_longer_than_its_one_job() {
    for (path, text) in sources("crates") {
        let lines = text.lines().count();
        let is_test = path.contains("/tests");
        assert!(is_test || lines <= 700, "{path} has {lines} lines: split it along a seam");
    }
}

/// One piece of a source, by its length in bytes.
enum Piece {
    Comment(usize),
    Other(usize),
}

/// The piece at the start of `rest`, a Rust source whose preceding character is `before`.
fn rust_piece(rest: &str, before: Option<char>) -> Piece {
    if rest.starts_with("//") {
        return Piece::Comment(line_length(rest));
    }
    if rest.starts_with("/*") {
        return Piece::Comment(block_comment_length(rest));
    }
    let is_in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let raw = if is_in_word { None } else { raw_string_length(rest) };
    let literal = raw.or_else(|| string_length(rest)).or_else(|| char_length(rest));
    Piece::Other(literal.unwrap_or_else(|| first_char_length(rest)))
}

/// The piece at the start of `rest`, an SQL source.
fn sql_piece(rest: &str, _before: Option<char>) -> Piece {
    if rest.starts_with("--") {
        return Piece::Comment(line_length(rest));
    }
    let quoted = rest.strip_prefix('\'').map(|text| text.find('\'').map_or(rest.len(), |end| end + 2));
    Piece::Other(quoted.unwrap_or_else(|| first_char_length(rest)))
}

fn line_length(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

fn first_char_length(rest: &str) -> usize {
    rest.chars().next().map_or(1, char::len_utf8)
}

/// Block comments of Rust nest.
fn block_comment_length(rest: &str) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < rest.len() {
        let (step, change) = match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
    }
    at
}

/// `r"…"`, `br#"…"#` and the like.
fn raw_string_length(rest: &str) -> Option<usize> {
    let marked = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let text = marked.trim_start_matches('#');
    let hashes = &marked[..marked.len() - text.len()];
    let text = text.strip_prefix('"')?;
    let end = format!("\"{hashes}");
    Some(rest.len() - text.len() + text.find(&end).map_or(text.len(), |at| at + end.len()))
}

fn string_length(rest: &str) -> Option<usize> {
    let text = rest.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    Some(end.map_or(rest.len(), |end| end + 2))
}

/// `None` for a lifetime.
fn char_length(rest: &str) -> Option<usize> {
    let text = rest.strip_prefix('\'')?;
    if text.starts_with('\\') {
        // Search behind the escaped character, which may be a quote.
        return text.get(2..)?.find('\'').map(|end| end + 4);
    }
    let length = first_char_length(text);
    text.get(length..)?.starts_with('\'').then_some(length + 2)
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
fn comments(source: &str, piece: fn(&str, Option<char>) -> Piece) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let (mut at, mut line, mut is_last_alone) = (0, 1, false);
    while at < source.len() {
        let (before, rest) = source.split_at(at);
        let (length, is_comment) = match piece(rest, before.chars().next_back()) {
            Piece::Comment(length) => (length, true),
            Piece::Other(length) => (length, false),
        };
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
            let comments = comments(&text, if path.ends_with(".sql") { sql_piece } else { rust_piece });
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
fn comments_and_prose_fit_the_columns() {
    let mut wide = Vec::new();
    let mut check = |path: &str, number: usize, line: &str| {
        let is_excepted = line.starts_with('|') || line.contains("://") || line.contains("](");
        if line.chars().count() > MAX_COLUMNS && !is_excepted {
            wide.push(format!("{path}:{number}: {line}"));
        }
    };
    for (path, source, comments) in commented_sources() {
        let lines: Vec<_> = source.lines().collect();
        for number in comments.into_iter().flat_map(|comment| comment.lines) {
            check(&path, number, lines[number - 1]);
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
    let found = comments(source, rust_piece);
    let expected = [
        (2..=3, "Head, two lines."),
        (4..=4, "Trailing."),
        (5..=5, "Another, because code stands before the last."),
        (7..=8, "One /* nested */ comment on two lines"),
        (11..=11, "Doc."),
    ];
    assert_eq!(found, expected.map(|(lines, text)| Comment { lines, text: text.to_owned() }));
    let sql = comments("select '--no' -- One.\n-- Two's\n-- lines.\n", sql_piece);
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
