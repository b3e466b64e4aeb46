//! What the service tells the warden, the warden tells what confines itself, and the warden answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How code is kept in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Confinement {
    /// Namespaces by bubblewrap, then landlock where the kernel has it, and seccomp.
    Namespaces {
        bwrap: PathBuf,
        /// Whether the sandbox may have a /proc of its own; some containers forbid it.
        proc: bool,
    },
    /// Landlock and seccomp in the namespaces of the service.
    Landlock,
    /// Limits and a working directory; no boundary.
    Nothing,
}

impl Confinement {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Namespaces { .. } => "namespaces",
            Self::Landlock => "landlock",
            Self::Nothing => "none",
        }
    }
}

/// What becomes of the confined process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Program {
    Python(PathBuf),
    Bash(PathBuf),
    /// Attempts to get out, for the self-test at start.
    Probe(Box<Targets>),
}

/// What a probe tries to reach. All of it is open to whoever is not confined.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Targets {
    /// A file that anybody may read, in a directory where the service may write.
    pub(crate) canary: PathBuf,
    /// A socket that anybody may connect to.
    pub(crate) socket: PathBuf,
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
    pub(crate) service: i32,
    /// The service's namespaces, as `/proc/self/ns` shows them; none of them may be shared in namespaces mode.
    pub(crate) namespaces: Vec<(String, String)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) wall_ms: u64,
    /// Of one process; behind the wall clock.
    pub(crate) cpu_seconds: u64,
    /// Address space of one process, and memory of all together.
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
    pub(crate) open_files: u64,
    pub(crate) files_bytes: u64,
    pub(crate) files: u64,
    pub(crate) result_bytes: usize,
}

/// One run, for the warden.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) confinement: Confinement,
    pub(crate) program: Program,
    pub(crate) limits: Limits,
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) scratch: PathBuf,
    /// User and group of the code, when the service is root.
    pub(crate) user: Option<u32>,
}

/// One run, for what confines itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Inside {
    pub(crate) program: Program,
    pub(crate) confinement: Confinement,
    pub(crate) limits: Limits,
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) work: PathBuf,
    /// The limit of tasks, which counts those of the whole user where the user is shared.
    pub(crate) tasks: u64,
    /// An open file of this program that the interpreter should close.
    pub(crate) spare: Option<i32>,
}

/// What the code ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Limit {
    Time,
    Memory,
    Processes,
    Files,
    Output,
}

/// How a run ended, from the warden.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// As a shell tells it: the code, or 128 and the signal.
    pub(crate) exit_code: i32,
    pub(crate) limit: Option<Limit>,
    /// Why nothing could be run, or what could not be cleaned up.
    pub(crate) failure: Option<String>,
}
