//! Rules of the repository that no compiler checks: layers and sizes here, the rest by file.

mod copies;
mod imports;
mod parameters;
mod words;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

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

/// Pieces of a Rust source: the length of each in bytes, and if it is a comment.
fn rust_pieces(source: &str) -> Vec<(usize, bool)> {
    let is_comment = |kind| matches!(kind, TokenKind::LineComment { .. } | TokenKind::BlockComment { .. });
    tokenize(source, FrontmatterAllowed::No).map(|token| (token.len as usize, is_comment(token.kind))).collect()
}

/// A Rust source without its comments.
fn code(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    for (length, is_comment) in rust_pieces(source) {
        if !is_comment {
            code.push_str(&source[at..at + length]);
        }
        at += length;
    }
    code
}

/// Fails if code outside of `allowed` names the crate `name`.
fn named_only_in(name: &str, allowed: &[&str]) {
    let uses = [format!("{name}::"), format!("use {name};"), format!("extern crate {name}")];
    for (path, text) in sources("crates") {
        let is_allowed = allowed.iter().any(|prefix| path.starts_with(prefix));
        for line in code(&text).lines() {
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
    // The domain's ids and enums are values of queries.
    named_only_in("sqlx", &["crates/store/src", "crates/proof/src", "crates/domain/src", "crates/telemetry/src"]);
    // The configuration has a module of that name.
    named_only_in("redis", &["crates/queue/src", "crates/config/src"]);
    named_only_in("apalis", &["crates/queue/src"]);
    named_only_in("apalis_core", &["crates/queue/src"]);
    named_only_in("axum", &["crates/api/src", "crates/page/src", "crates/testkit/src"]);
    named_only_in("clap", &["crates/cli/src", "crates/command/src", "crates/proof/src"]);
    named_only_in("comfy_table", &["crates/command/src"]);
    // Only tests and benchmarks make certificates and keep histograms.
    named_only_in("rcgen", &["crates/testkit/src"]);
    named_only_in("hdrhistogram", &["crates/proof/src"]);
    named_only_in("object_store", &["crates/files/src"]);
    named_only_in("stateright", &[]);
    named_only_in("landlock", &["crates/sandbox/src/fence"]);
    named_only_in("seccompiler", &["crates/sandbox/src/fence"]);
}

/// Crates of the product with the crates that each may depend on. Dependencies run one way.
const EDGES: [(&str, &[&str]); 29] = [
    ("fairness", &[]),
    ("sdk", &[]),
    ("shared", &[]),
    ("domain", &["sdk"]),
    ("telemetry", &["sdk", "shared", "domain"]),
    ("config", &["sdk", "shared", "domain", "telemetry"]),
    ("guards", &["sdk", "shared", "domain"]),
    ("contract", &["sdk", "domain", "guards"]),
    ("wire", &["sdk", "domain"]),
    ("references", &["sdk", "domain", "guards"]),
    ("store", &["sdk", "domain", "telemetry", "config", "guards", "contract"]),
    ("queue", &["shared", "domain", "telemetry", "config"]),
    ("llm", &["fairness", "sdk", "domain", "telemetry", "config", "guards", "store", "queue"]),
    ("retrieval", &["domain", "config", "guards", "store"]),
    ("files", &["fairness", "domain", "telemetry", "config", "guards", "store"]),
    ("browser", &["fairness", "domain", "config"]),
    ("tools", &["sdk", "domain", "config", "guards", "retrieval"]),
    (
        "agent",
        &[
            "sdk",
            "shared",
            "domain",
            "telemetry",
            "config",
            "guards",
            "references",
            "store",
            "queue",
            "llm",
            "files",
            "browser",
            "tools",
        ],
    ),
    (
        "worker",
        &[
            "sdk",
            "shared",
            "domain",
            "telemetry",
            "config",
            "guards",
            "contract",
            "references",
            "store",
            "queue",
            "llm",
            "retrieval",
            "files",
            "browser",
            "tools",
            "agent",
        ],
    ),
    ("page", &["fairness", "shared", "guards"]),
    ("oidc", &["domain", "config", "guards"]),
    ("webhooks", &["fairness", "shared", "domain", "telemetry", "guards", "store"]),
    (
        "api",
        &[
            "fairness",
            "sdk",
            "shared",
            "domain",
            "telemetry",
            "config",
            "guards",
            "contract",
            "wire",
            "store",
            "queue",
            "retrieval",
            "files",
            "page",
            "oidc",
            "webhooks",
        ],
    ),
    ("sandbox", &["fairness"]),
    ("embedded", &[]),
    ("testkit", &["queue", "embedded"]),
    ("command", &["shared", "telemetry", "config"]),
    (
        "proof",
        &["sdk", "shared", "domain", "config", "guards", "store", "queue", "worker", "embedded", "testkit", "command"],
    ),
    (
        "cli",
        &[
            "sdk",
            "shared",
            "domain",
            "config",
            "guards",
            "contract",
            "store",
            "queue",
            "llm",
            "retrieval",
            "files",
            "worker",
            "webhooks",
            "api",
            "sandbox",
            "embedded",
            "command",
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

/// A read without its tenant's place could take the whole pool.
#[test]
fn reads_of_the_api_take_places() {
    // They read memory, have no tenant, have a place among the streams, or answer for an engine elsewhere.
    let others = [
        "getHealth",
        "getReadiness",
        "getMetrics",
        "whoami",
        "listEvents",
        "followSession",
        "findInternalAgentExecutions",
        "getInternalAgentExecution",
        "getAgentExecution",
    ];
    let mut count = 0;
    for (path, text) in sources("crates/api/src/routes") {
        for route in text.split("#[utoipa::path(").skip(1) {
            let Some(described) = route.trim_start().strip_prefix("get,") else { continue };
            let name = described.split('"').nth(1).unwrap();
            let handler = &route[route.find("async fn").unwrap()..];
            let takes_place = handler[..handler.find('{').unwrap()].contains("Reader");
            assert_eq!(takes_place, !others.contains(&name), "{name} in {path}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
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
    assert_eq!(manifest.matches("longhaul-").count(), 2, "more than its own name and `fairness`: {manifest}");
    for (path, text) in sources("crates/sandbox/src") {
        let text = text.replace("longhaul_fairness", "");
        assert!(!text.contains("longhaul_"), "{path} names another crate of the product");
    }
}

#[test]
fn the_domain_is_pure() {
    let pure = ["crates/domain/src", "crates/contract/src", "crates/references/src"];
    for (path, text) in pure.into_iter().flat_map(sources) {
        for forbidden in ["async fn", "tokio::", "std::env"] {
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

/// The numbered lists of files in "The short way" of ARCHITECTURE.md, with the text of each file.
fn short_ways() -> Vec<Vec<(String, String)>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = text.split_once("\n## The short way\n").unwrap();
    let mut ways: Vec<Vec<(String, String)>> = Vec::new();
    for line in section.split("\n## ").next().unwrap().lines() {
        let Some((number, rest)) = line.split_once(". `") else { continue };
        if number == "1" {
            ways.push(Vec::new());
        }
        let path = rest.split('`').next().unwrap().to_owned();
        let source = fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        ways.last_mut().unwrap().push((path, source));
    }
    ways
}

#[test]
fn one_execution_reads_in_six_files() {
    let ways = short_ways();
    let [execution, submit] = &ways[..] else { panic!("{} lists in the short way", ways.len()) };
    assert!(execution.len() <= 6, "{} files from claim to outcome", execution.len());
    assert!(submit.len() <= 4, "{} files from a submit to its wake-up", submit.len());
    let lines: usize = execution.iter().map(|(_, source)| source.lines().count()).sum();
    assert!(lines <= 1_200, "{lines} lines from claim to outcome");
    let steps = ["fn consume(", "fn claim(", "fn attempt(", "fn decide(", "fn conclude("].map(|step| (execution, step));
    for (way, step) in steps.into_iter().chain(["fn submit(", "fn publish("].map(|step| (submit, step))) {
        assert!(way.iter().any(|(_, source)| source.contains(step)), "no file of the short way has `{step}`");
    }
}

#[test]
fn no_file_is_longer_than_its_one_job() {
    for (path, text) in ["crates", "tests"].into_iter().flat_map(sources) {
        let lines = text.lines().count();
        let is_test = path.contains("/tests") || path.starts_with("tests/");
        assert!(is_test || lines <= 700, "{path} has {lines} lines: split it along a seam");
        let says_why = header(&text).contains("The file is long because ");
        assert!(lines <= 500 || says_why, "{path} has {lines} lines, and its header does not say why");
    }
}

/// The comment at the top of a source, in one line.
fn header(source: &str) -> String {
    source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect::<Vec<_>>().join(" ")
}
