//! The client packages of `clients/`: compared with the API's document, built, installed, and run against an API and a
//! worker.

mod python;
mod typescript;

use std::{
    fs,
    path::{Path, PathBuf},
};

use longhaul_sdk::{AgentSpec, DefinitionSpec};
use tokio::process::Command;

use crate::{
    support::fleet::{Fleet, FleetWorker},
    worker::typed::Api,
};

/// Folders that tools write into a package.
const WRITTEN: [&str; 3] = ["node_modules", "dist", "__pycache__"];

/// An API and a worker with the definition `mail-triage` on the scripted model.
struct Service {
    api: Api,
    _worker: FleetWorker,
    _fleet: Fleet,
}

impl Service {
    async fn start() -> Self {
        let mut fleet = Fleet::start().await;
        fleet.set("LONGHAUL__LLM__DEFAULT_PROVIDER", "scripted");
        let agent: AgentSpec = serde_saphyr::from_str(include_str!("../../../agents/mail-sorter.yaml")).unwrap();
        let definition: DefinitionSpec =
            serde_saphyr::from_str(include_str!("../../../definitions/mail-triage.yaml")).unwrap();
        fleet.apply(&agent, &definition).await;
        let api = Api::start(&mut fleet).await;
        Self { api, _worker: fleet.worker(), _fleet: fleet }
    }

    /// Runs a program that must succeed, with the address and key of the API.
    async fn run(&self, command: &mut Command) {
        let url = self.api.url.trim_end_matches("/v1");
        done(command.env("LONGHAUL_URL", url).env("LONGHAUL_API_KEY", &self.api.key)).await;
    }
}

/// Runs a program that must succeed; returns its output.
async fn done(command: &mut Command) -> String {
    let output = command.output().await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// True if the program ran and succeeded.
async fn succeeds(command: &mut Command) -> bool {
    command.output().await.is_ok_and(|output| output.status.success())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Every operation of docs/openapi.json has a method in both packages, and their generated files are up to date.
#[tokio::test(flavor = "multi_thread")]
async fn generated_clients_match_the_document() {
    done(Command::new("python3").args(["-B", "clients/generate", "--check"]).current_dir(root())).await;
}

/// Copies a package into the build's directory, where its tools may write.
fn copy_package(name: &str) -> PathBuf {
    copy_package_as(name, name)
}

/// The same under another name, for a test beside.
fn copy_package_as(name: &str, copy: &str) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(copy);
    copy_folder(&root().join("clients").join(name), &to);
    to
}

/// Copies files and replaces subfolders; keeps other subfolders of `to`, such as installed tools.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if !path.is_dir() {
            fs::copy(&path, &copy).unwrap();
        } else if !WRITTEN.iter().any(|written| path.ends_with(written)) {
            let _ = fs::remove_dir_all(&copy);
            copy_folder(&path, &copy);
        }
    }
}

/// The blocks of code in one language of the guide and of the package's README, each text as one program.
fn examples(package: &str, language: &str) -> [String; 2] {
    let texts = ["docs/guide/clients.md".to_owned(), format!("clients/{package}/README.md")];
    texts.map(|path| {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix(language));
        let program: Vec<&str> = blocks.filter_map(|block| block.strip_prefix('\n')).collect();
        assert!(!program.is_empty(), "no {language} in {path}");
        program.join("\n")
    })
}
