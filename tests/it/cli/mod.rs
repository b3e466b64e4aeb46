//! The client commands of the built program against a real API: output and exit codes.

mod apply;
mod doctor;
mod executions;
mod failed;
mod files;
mod keys;
mod many;
mod mistakes;
mod newcomer;
mod people;
mod projects;
mod quarantine;
mod runs;
mod schedule;
mod skills;
mod usage;
mod webhook;
mod workers;

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::{support::fleet::Fleet, worker::typed::Api};

/// The program; see `tests/Cargo.toml`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");

/// Environment of the commands, with a key that has every scope.
struct Shell {
    url: String,
    key: String,
    /// Empty working directory, so that only the environment names the API.
    dir: TempDir,
    /// Folder below `dir` in which commands run.
    folder: String,
    /// Further variables.
    variables: Vec<(String, String)>,
    _api: Api,
}

/// Result of a command.
#[derive(Debug)]
struct CommandResult {
    code: i32,
    out: String,
    err: String,
}

impl CommandResult {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Shell {
    async fn open(fleet: &mut Fleet) -> Self {
        let api = Api::start(fleet).await;
        let url = api.url.trim_end_matches("/v1").to_owned();
        Self {
            url,
            key: api.key.clone(),
            dir: tempfile::tempdir().unwrap(),
            folder: String::new(),
            variables: Vec::new(),
            _api: api,
        }
    }

    /// Sets a variable for the commands run from now on.
    fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    async fn run(&self, arguments: &[&str]) -> CommandResult {
        self.run_with(arguments, "").await
    }

    /// Runs a command with `input` as its standard input.
    async fn run_with(&self, arguments: &[&str], input: &str) -> CommandResult {
        let mut command = self.command(arguments, input);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        CommandResult::of(output)
    }

    /// A command that is not started yet.
    fn command(&self, arguments: &[&str], input: &str) -> Command {
        std::fs::write(self.dir.path().join(".input"), input).unwrap();
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .env_clear()
            .env("LONGHAUL_URL", &self.url)
            .env("LONGHAUL_API_KEY", &self.key)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path().join(&self.folder))
            .stdin(Stdio::from(std::fs::File::open(self.dir.path().join(".input")).unwrap()));
        command
    }

    /// Runs a command that must succeed, and returns its output.
    async fn done(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments).await;
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    /// Runs a command with `--json` and parses its output.
    async fn json(&self, arguments: &[&str]) -> Value {
        let out = self.done(&[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
    }

    /// Runs a command that must fail with this exit code, without output, and with these texts in its error.
    async fn refused(&self, arguments: &[&str], code: i32, says: &[&str]) {
        let ran = self.run(arguments).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{arguments:?}: {ran:?}");
        for text in says {
            assert!(ran.err.contains(text), "{arguments:?} does not say `{text}`: {}", ran.err);
        }
    }
}

/// An id without an object.
fn nobody() -> String {
    uuid::Uuid::now_v7().to_string()
}
