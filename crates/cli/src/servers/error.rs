//! What can go wrong with a private server, each with what the reader needs to put it right.

use std::io;
use std::path::PathBuf;

use super::preflight::MissingServers;

/// A private server could not be started, stopped or signalled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServersError {
    /// The binaries are not installed; the text holds the command that installs them.
    #[error(transparent)]
    Missing(#[from] MissingServers),
    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, with its path or program.
        action: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Another live process holds the directory.
    #[error("{} is in use by process {pid}", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Its owner, or a server that an earlier owner left and that does not stop.
        pid: i32,
    },
    /// The data directory belongs to somebody else, so the server would refuse it.
    #[error("{} belongs to user id {owner}, not {expected}: remove it or run as its owner", dir.display())]
    ForeignDirectory {
        /// The directory.
        dir: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who would have to.
        expected: u32,
    },
    /// The data directory was made by a PostgreSQL whose binaries are gone.
    #[error("{} was made by PostgreSQL {wanted}, which is not installed: install it or remove the directory", dir.display())]
    OtherVersion {
        /// The data directory.
        dir: PathBuf,
        /// The major version that made it.
        wanted: u32,
    },
    /// A helper program of the server failed.
    #[error("{program} failed: {output}")]
    Tool {
        /// The program.
        program: &'static str,
        /// The end of what it printed.
        output: String,
    },
    /// The server exited or was not ready in time.
    #[error("{server} did not start ({reason}); the end of {}:\n{tail}", log.display())]
    DidNotStart {
        /// Which server.
        server: &'static str,
        /// What was seen.
        reason: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// The server survived SIGKILL for longer than the system should take.
    #[error("{server} (process {pid}) did not stop")]
    DidNotStop {
        /// Which server.
        server: &'static str,
        /// Its process.
        pid: i32,
    },
    /// A signal was asked for while the server was stopped.
    #[error("{server} is not running")]
    NotRunning {
        /// Which server.
        server: &'static str,
    },
    /// The blocking half of an operation was cancelled by the runtime's end.
    #[error("the runtime ended before {server} was handled")]
    Cancelled {
        /// Which server.
        server: &'static str,
    },
}

impl ServersError {
    pub(super) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}
