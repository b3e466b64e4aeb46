//! Imports between the files of a crate: two files never import each other, unless the header of one says why in
//! a sentence that begins with "In a circle with `<file>`:".
//!
//! The page of a folder (`mod.rs`, `lib.rs`) declares the files of the folder, which may use what it holds for all of
//! them. A name that a page exports belongs to the file that defines it. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::{header, sources};

/// Path of a module in its crate; empty for the root.
type Module = Vec<String>;

/// A source file, without its tests and comments.
struct Source {
    /// Path in the repository.
    path: String,
    header: String,
    code: String,
}

impl Source {
    fn read(path: &str, text: &str) -> Self {
        let (mut code, mut lines) = (Vec::new(), text.lines());
        while let Some(line) = lines.next() {
            if line.trim() != "#[cfg(test)]" {
                code.push(line.split("//").next().unwrap_or_default());
            } else if !lines.next().is_some_and(|item| item.ends_with(';')) {
                // The tests of the file, at its end.
                break;
            }
        }
        Self { path: path.to_owned(), header: header(text), code: code.join("\n") }
    }

    fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns true if the header gives a reason for the circle with `other`.
    fn explains(&self, other: &Self) -> bool {
        self.header.contains(&format!("In a circle with `{}`: ", other.file_name()))
    }
}

/// Adds the paths that the tree of a `use` declaration names.
fn expand(prefix: &[&str], tree: &str, found: &mut Vec<Module>) {
    let (mut depth, mut start) = (0, 0);
    let ends = tree.char_indices().chain([(tree.len(), ',')]).filter_map(|(at, c)| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        (c == ',' && depth == 0).then_some(at)
    });
    for end in ends.collect::<Vec<_>>() {
        let part = tree[start..end].trim();
        start = end + 1;
        let (head, group) = match part.split_once('{') {
            Some((head, rest)) => (head, rest.strip_suffix('}')),
            None => (part.split(" as ").next().unwrap_or_default(), None),
        };
        let segments: Vec<_> = head.split("::").map(str::trim).filter(|segment| !segment.is_empty()).collect();
        let path = [prefix, &segments].concat();
        match group {
            Some(group) => expand(&path, group, found),
            None if path.is_empty() => {}
            None => found.push(path.into_iter().map(str::to_owned).collect()),
        }
    }
}

/// Paths of the `use` declarations of a code, and if each is an export.
fn declared(code: &str) -> Vec<(Module, bool)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with("pub") {
            let mut paths = Vec::new();
            expand(&[], code[at + 4..].split(';').next().unwrap_or_default(), &mut paths);
            found.extend(paths.into_iter().map(|path| (path, !line.is_empty())));
        }
    }
    found
}

/// Paths in expressions and signatures that begin with `crate`, `super` or `self`.
fn inline(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            let rest = &code[at..];
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
            if is_whole {
                found.push(rest[..end].split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
            }
        }
    }
    found
}

/// The files of one crate by module.
struct Modules(BTreeMap<Module, Source>);

impl Modules {
    /// The module that `path`, as written in `from`, is in, and the name in it. `None` for another crate.
    fn locate(&self, from: &Module, path: &[String]) -> Option<(Module, Option<String>)> {
        let mut absolute = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => from.clone(),
            child => {
                let below = [from.as_slice(), &[child.to_owned()]].concat();
                self.0.contains_key(&below).then(|| from.clone())?
            }
        };
        for segment in path {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(absolute.pop()),
                name => absolute.push(name.to_owned()),
            }
        }
        let mut names = Vec::new();
        while !self.0.contains_key(&absolute) {
            names.push(absolute.pop()?);
        }
        Some((absolute, names.pop()))
    }

    /// Names that each module exports of others.
    fn exports(&self) -> BTreeMap<(&Module, String), Module> {
        let all = self.0.iter().flat_map(|(module, source)| {
            declared(&source.code).into_iter().filter(|(_, is_export)| *is_export).map(move |(path, _)| (module, path))
        });
        all.filter_map(|(module, path)| {
            let (of, name) = self.locate(module, &path)?;
            Some(((module, name?), of))
        })
        .collect()
    }

    /// The modules from which each module takes a name.
    fn imports(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let exports = self.exports();
        let of = |module: &Module, source: &Source| {
            let paths = declared(&source.code).into_iter().map(|(path, _)| path).chain(inline(&source.code));
            let located = paths.filter_map(|path| {
                let (of, name) = self.locate(module, &path)?;
                Some(name.and_then(|name| exports.get(&(&of, name)).cloned()).unwrap_or(of))
            });
            located.collect()
        };
        self.0.iter().map(|(module, source)| (module, of(module, source))).collect()
    }

    /// Pairs of files that import each other, other than the page of a folder and a file in that folder.
    fn circles(&self) -> Vec<(&Source, &Source)> {
        let imports = self.imports();
        let mut found = Vec::new();
        for (one, of_one) in &imports {
            for other in of_one.iter().filter(|other| *one < *other && imports[other].contains(*one)) {
                let is_page = other.starts_with(one);
                if !is_page {
                    found.push((&self.0[*one], &self.0[other]));
                }
            }
        }
        found
    }
}

/// The files of every crate.
fn crates() -> BTreeMap<String, Modules> {
    let mut found: BTreeMap<String, Modules> = BTreeMap::new();
    for (path, text) in sources("crates") {
        let Some((name, file)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else {
            continue;
        };
        let mut module: Module = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        match module.last().map(String::as_str) {
            Some("tests") => continue,
            Some("mod" | "lib" | "main") => drop(module.pop()),
            Some(_) | None => {}
        }
        let modules = found.entry(name.to_owned()).or_insert_with(|| Modules(BTreeMap::new()));
        modules.0.insert(module, Source::read(&path, &text));
    }
    found
}

#[test]
fn no_two_files_import_each_other() {
    let (mut circles, mut explained) = (Vec::new(), 0);
    let crates = crates();
    for (one, other) in crates.values().flat_map(Modules::circles) {
        if one.explains(other) || other.explains(one) {
            explained += 1;
        } else {
            circles.push(format!("{} and {}", one.path, other.path));
        }
    }
    assert!(circles.is_empty(), "files import each other, and no header says why:\n{}", circles.join("\n"));
    let sources = crates.values().flat_map(|modules| modules.0.values());
    let reasons: usize = sources.map(|source| source.header.matches("In a circle with `").count()).sum();
    assert_eq!(reasons, explained, "a header explains a circle that is none");
}

#[test]
fn imports_are_resolved() {
    let source = |name: &str, code: &str| Source::read(&format!("crates/x/src/{name}"), code);
    let modules = Modules(BTreeMap::from([
        (vec![], source("lib.rs", "mod a; mod b;\npub use a::A;")),
        (vec!["a".into()], source("a.rs", "//! In a circle with `c.rs`: why.\nuse crate::{b::{self, c::C as D}, x};")),
        (vec!["b".into()], source("b/mod.rs", "pub(crate) mod c;\npub use self::c::C;")),
        (vec!["b".into(), "c".into()], source("b/c.rs", "fn f(_: crate::A) {} // use crate::b;\nuse std::fmt;")),
        (
            vec!["d".into()],
            source(
                "d.rs",
                "#[cfg(test)]\nuse crate::e::E;\nuse super::b::C;\n#[cfg(test)]\nmod tests {\nuse crate::e::E;",
            ),
        ),
        (vec!["e".into()], source("e.rs", "fn f() { super::d::g() }")),
    ]));
    let circles: Vec<_> = modules.circles().into_iter().map(|(a, b)| (a.file_name(), b.file_name())).collect();
    assert_eq!(circles, [("a.rs", "c.rs")]);
    let (a, c) = (&modules.0[&vec!["a".to_owned()]], &modules.0[&vec!["b".to_owned(), "c".to_owned()]]);
    assert!(a.explains(c) && !c.explains(a));
    let imports = modules.imports();
    assert_eq!(imports[&vec!["d".to_owned()]], BTreeSet::from([vec!["b".to_owned(), "c".to_owned()]]));
    assert_eq!(imports[&vec!["e".to_owned()]], BTreeSet::from([vec!["d".to_owned()]]));
}
