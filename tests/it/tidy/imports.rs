//! Imports between the files of a crate: two files never import each other, unless the header of one says why in a
//! sentence that begins with "In a circle with `<file>`:". No circle has more than [`MAX_CIRCLE`] files.
//!
//! The page of a folder (`mod.rs`, `lib.rs`) declares the files of the folder, which may use what it holds for all of
//! them: imports between them close no circle. A name that a page exports belongs to the file that defines it. Tests do
//! not count.

use std::collections::{BTreeMap, BTreeSet};

use super::{header, sources};

/// Most files of which each leads to each other.
const MAX_CIRCLE: usize = 3;

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
        let source = super::code(text);
        let (mut code, mut lines) = (Vec::new(), source.lines());
        while let Some(line) = lines.next() {
            if line.trim() != "#[cfg(test)]" {
                code.push(line);
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
                let (mut of, name) = self.locate(module, &path)?;
                while let Some(next) =
                    name.clone().and_then(|name| exports.get(&(&of, name))).filter(|next| **next != of)
                {
                    of = next.clone();
                }
                Some(of)
            });
            located.collect()
        };
        self.0.iter().map(|(module, source)| (module, of(module, source))).collect()
    }

    /// The modules from which each module takes a name, without those between the page of a folder and a file in it.
    fn imports_between(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let mut imports = self.imports();
        for (module, of) in &mut imports {
            of.retain(|other| !other.starts_with(module) && !module.starts_with(other));
        }
        imports
    }

    /// Pairs of files that import each other.
    fn pairs(&self) -> Vec<(&Source, &Source)> {
        let imports = self.imports_between();
        let mut found = Vec::new();
        for (one, of_one) in &imports {
            for other in of_one.iter().filter(|other| *one < *other && imports[other].contains(*one)) {
                found.push((&self.0[*one], &self.0[other]));
            }
        }
        found
    }

    /// Groups of files of which each leads to each other: the strongly connected components of at least two files.
    fn circles(&self) -> Vec<Vec<&Source>> {
        let imports = self.imports_between();
        let reached = |from: &Module| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![&imports[from]]);
            while let Some(of) = next.pop() {
                next.extend(of.iter().filter(|module| reached.insert(*module)).map(|module| &imports[module]));
            }
            reached
        };
        let reach: BTreeMap<&Module, BTreeSet<&Module>> = imports.keys().map(|from| (*from, reached(from))).collect();
        let circle = |(one, of_one): (&&Module, &BTreeSet<&Module>)| {
            let members: Vec<&Module> = of_one.iter().copied().filter(|other| reach[other].contains(*one)).collect();
            // Each circle once, at its first member.
            (members.first() == Some(one)).then(|| members.into_iter().map(|member| &self.0[member]).collect())
        };
        reach.iter().filter_map(circle).collect()
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
    for (one, other) in crates.values().flat_map(Modules::pairs) {
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
fn few_files_lead_to_each_other() {
    let crates = crates();
    let circles = crates.values().flat_map(Modules::circles).filter(|circle| circle.len() > MAX_CIRCLE);
    let circles: Vec<String> = circles.map(|circle| paths(&circle).join(", ")).collect();
    assert!(circles.is_empty(), "each of these files leads to each other:\n{}", circles.join("\n"));
}

fn paths<'a>(circle: &[&'a Source]) -> Vec<&'a str> {
    circle.iter().map(|source| source.path.as_str()).collect()
}

fn source(name: &str, code: &str) -> Source {
    Source::read(&format!("crates/x/src/{name}"), code)
}

#[test]
fn rings_are_found_and_chains_are_not() {
    let file = |name: &str, code: &str| (vec![name.to_owned()], source(&format!("{name}.rs"), code));
    let page = (vec![], source("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f;\npub use a::A;\nuse f::F;"));
    let ring = [
        page,
        file("a", "use super::b::B;"),
        file("b", "use crate::c::C;"),
        file("c", "fn c() { super::d::d() }"),
        file("d", "use crate::A;"),
        file("e", "use super::a::A;"),
        file("f", "use crate::e::E;"),
    ];
    let ring = Modules(BTreeMap::from(ring));
    let circles: Vec<_> = ring.circles().iter().map(|circle| paths(circle)).collect();
    assert_eq!(circles, [["a", "b", "c", "d"].map(|name| format!("crates/x/src/{name}.rs"))]);
    let mut chain = ring;
    chain.0.extend([file("d", "use std::fmt;")]);
    assert!(chain.circles().is_empty());
}

#[test]
fn imports_are_resolved() {
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
    let pairs: Vec<_> = modules.pairs().into_iter().map(|(a, b)| (a.file_name(), b.file_name())).collect();
    assert_eq!(pairs, [("a.rs", "c.rs")]);
    let (a, c) = (&modules.0[&vec!["a".to_owned()]], &modules.0[&vec!["b".to_owned(), "c".to_owned()]]);
    assert!(a.explains(c) && !c.explains(a));
    let imports = modules.imports();
    assert_eq!(imports[&vec!["d".to_owned()]], BTreeSet::from([vec!["b".to_owned(), "c".to_owned()]]));
    assert_eq!(imports[&vec!["e".to_owned()]], BTreeSet::from([vec!["d".to_owned()]]));
}
