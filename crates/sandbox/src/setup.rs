//! Messages between the service and the warden, and from the warden to the init process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Confinement of the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Confinement {
    /// Namespaces by bubblewrap, then landlock where the kernel has it, and seccomp.
    Namespaces {
        bwrap: PathBuf,
        /// True if the sandbox may mount a /proc of its own; some containers forbid it.
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

/// Program that the confined process becomes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Program {
    Python(PathBuf),
    Bash(PathBuf),
    /// Runs a command over the files that the request brings, and returns those that it leaves.
    Workspace {
        bash: PathBuf,
        /// Maximum time of the command.
        time_ms: u64,
    },
    /// Escape attempts, for the self-test at start.
    Probe(Box<Targets>),
}

/// Targets of the probe. All of them are open to an unconfined process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Targets {
    /// A world-readable file, in a directory that the service may write to.
    pub(crate) canary: PathBuf,
    /// A Unix socket open to every user.
    pub(crate) socket: PathBuf,
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
    pub(crate) service: i32,
    /// The service's namespaces, as in `/proc/self/ns`; in namespaces mode none of them may be shared.
    pub(crate) namespaces: Vec<(String, String)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) wall_ms: u64,
    /// Per process; a backstop behind the wall clock.
    pub(crate) cpu_seconds: u64,
    /// Address space of one process, and memory of all processes together.
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
    /// User and group id of the code, when the service is root.
    pub(crate) user: Option<u32>,
}

/// One run, for the init process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Inside {
    pub(crate) program: Program,
    pub(crate) confinement: Confinement,
    pub(crate) limits: Limits,
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) work: PathBuf,
    /// Limit of tasks. Where the user is shared it includes the user's other tasks.
    pub(crate) tasks: u64,
    /// Descriptor of this program's file, which the interpreter should close.
    pub(crate) spare: Option<i32>,
}

/// The limit that ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Limit {
    Time,
    Memory,
    Processes,
    Files,
    Output,
}

/// Outcome of a run, from the warden.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Exit status as in a shell: the code, or 128 plus the signal.
    pub(crate) exit_code: i32,
    pub(crate) limit: Option<Limit>,
    /// Reason why the program could not run, or the working directory could not be removed.
    pub(crate) failure: Option<String>,
}
