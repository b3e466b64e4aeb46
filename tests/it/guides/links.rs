//! Links of documents, their anchors, and the names of files, database functions and constants in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

use super::root;

/// Folders whose files documents name by their path in the repository.
const FOLDERS: &str = r"\.ci|clients|crates|deploy|docs|examples|migrations|model|tests";

/// Documents at the root and below `docs`.
fn documents() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/adr", "docs/design", "docs/guide", "docs/reference"];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The text without its blocks of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Anchors of the headings, as GitHub makes them; a repeated heading gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = text.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() { heading.strip_prefix(' ') } else { None }
    });
    let slugs = headings.map(|heading| {
        let kept = heading.trim().to_lowercase().replace(' ', "-");
        kept.chars().filter(|&c| c.is_alphanumeric() || c == '-' || c == '_').collect::<String>()
    });
    slugs
        .map(|slug| {
            let count = seen.entry(slug.clone()).or_default();
            *count += 1;
            if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
        })
        .collect()
}

/// The reason why a link of `document` leads nowhere.
fn broken(document: &Path, link: &str) -> Option<String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { document.to_owned() } else { document.parent().unwrap().join(path) };
    if !target.exists() {
        return Some(format!("{}: there is no {path}", document.display()));
    }
    let is_known = anchor.is_empty() || anchors(&prose(&fs::read_to_string(&target).unwrap())).contains(anchor);
    (!is_known).then(|| format!("{}: {path} has no heading #{anchor}", document.display()))
}

#[test]
fn links_and_their_anchors_exist() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let (mut seen, mut wrong) = (0, Vec::new());
    for document in documents() {
        let text = prose(&fs::read_to_string(&document).unwrap());
        for found in link.captures_iter(&text).filter(|found| !found[1].contains("://")) {
            seen += 1;
            wrong.extend(broken(&document, &found[1]));
        }
    }
    assert!(seen > 300, "only {seen} links found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_named_in_documents_exist() {
    let file = Regex::new(&format!("`((?:{FOLDERS})/[A-Za-z0-9_./-]+)`")).unwrap();
    let (mut seen, mut wrong) = (0, Vec::new());
    for document in documents() {
        let text = prose(&fs::read_to_string(&document).unwrap());
        for found in file.captures_iter(&text) {
            seen += 1;
            if !root().join(&found[1]).exists() {
                wrong.push(format!("{}: there is no {}", document.display(), &found[1]));
            }
        }
    }
    assert!(seen > 100, "only {seen} names found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Appends the sources below a folder to `text`.
fn read_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|own| ["rs", "sql", "lua"].iter().any(|source| own == *source)) {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// True for the name of a constant, a database function or a metric.
fn is_name_of_source(word: &str) -> bool {
    let consists_of = |is_part: fn(char) -> bool| word.chars().all(|c| is_part(c) || c == '_' || c.is_ascii_digit());
    let is_constant = word.contains('_') && consists_of(|c| c.is_ascii_uppercase());
    is_constant || (word.starts_with("longhaul_") && consists_of(|c| c.is_ascii_lowercase()))
}

#[test]
fn names_in_design_pages_exist() {
    let mut sources = String::new();
    for folder in ["crates", "migrations", "model"] {
        read_sources(&root().join(folder), &mut sources);
    }
    let (mut seen, mut wrong) = (0, Vec::new());
    for document in documents().into_iter().filter(|path| path.parent().unwrap().ends_with("docs/design")) {
        let text = prose(&fs::read_to_string(&document).unwrap());
        for word in text.split('`').skip(1).step_by(2).filter(|word| is_name_of_source(word)) {
            seen += 1;
            if !sources.contains(word) {
                wrong.push(format!("{}: there is no {word}", document.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} names found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_guide_is_in_the_table_of_contents() {
    let contents = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for folder in ["guide", "reference", "design", "adr"] {
        for entry in fs::read_dir(root().join("docs").join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(contents.contains(&format!("({folder}/{name})")), "docs/README.md does not link {folder}/{name}");
        }
    }
}
