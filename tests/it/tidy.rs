//! Rules of the repository that no compiler checks.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn walk(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn sources(under: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(&root().join(under), &mut found);
    found.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    assert!(!found.is_empty(), "no sources under {under}");
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
    named_only_in("sqlx", &["crates/shared/src/store"]);
    // The configuration has a module of that name.
    named_only_in("redis", &["crates/shared/src/queue", "crates/shared/src/config"]);
    named_only_in("apalis", &["crates/shared/src/queue"]);
    named_only_in("apalis_core", &["crates/shared/src/queue"]);
    named_only_in("axum", &["crates/api/src"]);
    named_only_in("clap", &["crates/cli/src"]);
    named_only_in("longhaul_worker", &["crates/cli/src"]);
    named_only_in("longhaul_api", &["crates/cli/src"]);
    named_only_in("longhaul_sandbox", &["crates/cli/src"]);
    named_only_in("longhaul_model", &[]);
    named_only_in("stateright", &[]);
    named_only_in("landlock", &["crates/sandbox/src/fence"]);
    named_only_in("seccompiler", &["crates/sandbox/src/fence"]);
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
    for (path, text) in sources("crates/shared/src/domain") {
        for forbidden in ["async fn", "tokio::", "crate::store", "crate::queue", "crate::config", "std::env"] {
            assert!(!text.contains(forbidden), "{path} holds {forbidden}");
        }
    }
}

#[test]
fn the_agent_loop_stays_one_page() {
    let text = fs::read_to_string(root().join("crates/worker/src/agent/run.rs")).unwrap();
    assert!(text.lines().count() <= 120, "agent/run.rs outgrew its page");
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
