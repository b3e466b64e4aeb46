//! What an operator sets. `shared::config` has the reference, the defaults and the rules between them.

use std::{path::PathBuf, time::Duration};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The settings of a sandbox.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program, which has the commands `sandbox-warden` and `sandbox-init`.
    pub program: PathBuf,
    pub confinement: Choice,
    /// Serve even where nothing confines.
    pub dangerously_run_unconfined: bool,
    pub languages: Vec<Language>,
    pub python: PathBuf,
    pub bash: PathBuf,
    /// `None`: where distributions put it.
    pub bwrap: Option<PathBuf>,
    /// What code may read beside the system's programs and libraries.
    pub readable: Vec<PathBuf>,
    /// Under which working directories are made, where they are not in memory.
    pub scratch: PathBuf,
    /// Whoever calls must show it.
    pub token: Option<SecretString>,
    /// The first of the users that code runs as when this process is root, one for each request at a time.
    pub first_user: u32,
    pub concurrency: usize,
    /// Requests that wait for their turn.
    pub queue_max: usize,
    /// How long one waits.
    pub queue_wait: Duration,
    /// When the request says nothing.
    pub timeout: Duration,
    pub timeout_max: Duration,
    pub memory_bytes: u64,
    pub processes_max: u64,
    pub open_files_max: u64,
    pub files_bytes: u64,
    pub files_max: u64,
    /// Of each of stdout and stderr.
    pub output_bytes: usize,
    pub result_bytes: usize,
    pub code_bytes: usize,
    pub request_bytes: usize,
    pub shutdown: Duration,
}

/// Which confinement to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Namespaces, or landlock where those are not allowed.
    Auto,
    Namespaces,
    Landlock,
}

/// What code may be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Python,
    Bash,
}

impl Language {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Bash => "bash",
        }
    }

    /// The language of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Self::Python, Self::Bash].into_iter().find(|language| language.name() == name)
    }
}

/// Output is cut at its limit and thrown away from there; who prints this many times as much is stopped.
const FLOOD: usize = 256;

impl Options {
    pub(crate) fn flood_bytes(&self) -> usize {
        self.output_bytes.saturating_mul(FLOOD)
    }
}
