//! Settings of the sandbox. `shared::config` has the reference, the defaults and the rules between them.

use std::{path::PathBuf, time::Duration};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The settings of a sandbox.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of this program, which has the commands `sandbox-warden` and `sandbox-init`.
    pub program: PathBuf,
    pub confinement: Choice,
    /// Serve even if no confinement works.
    pub dangerously_run_unconfined: bool,
    pub languages: Vec<Language>,
    pub python: PathBuf,
    pub bash: PathBuf,
    /// Path of bubblewrap; `None` searches the usual paths.
    pub bwrap: Option<PathBuf>,
    /// Paths that code may read besides the system's programs and libraries.
    pub readable: Vec<PathBuf>,
    /// Parent of the working directories that are not in memory.
    pub scratch: PathBuf,
    /// Token that a caller must send; `None` lets every caller in.
    pub token: Option<SecretString>,
    /// First user id for the code when this process is root; each concurrent request gets an id of its own.
    pub first_user: u32,
    pub concurrency: usize,
    /// Maximum number of requests that wait for a permit.
    pub queue_max: usize,
    /// Maximum time a request waits for a permit.
    pub queue_wait: Duration,
    /// Default time limit of a request.
    pub timeout: Duration,
    pub timeout_max: Duration,
    pub memory_bytes: u64,
    pub processes_max: u64,
    pub open_files_max: u64,
    pub files_bytes: u64,
    pub files_max: u64,
    /// Maximum bytes kept of each of stdout and stderr.
    pub output_bytes: usize,
    pub result_bytes: usize,
    pub code_bytes: usize,
    pub request_bytes: usize,
    pub shutdown: Duration,
}

/// Confinement to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Namespaces, or landlock where namespaces are not allowed.
    Auto,
    Namespaces,
    Landlock,
}

/// Language of the code.
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

    /// Returns the language with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Self::Python, Self::Bash].into_iter().find(|language| language.name() == name)
    }
}

/// Multiple of `output_bytes` at which a run is stopped. Between the two, output is discarded.
const FLOOD: usize = 256;

impl Options {
    pub(crate) fn flood_bytes(&self) -> usize {
        self.output_bytes.saturating_mul(FLOOD)
    }
}
