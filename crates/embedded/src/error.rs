//! Errors of the private servers, with the facts needed to fix them.

use std::io;
use std::path::PathBuf;

use crate::preflight::MissingServers;

/// A private server could not be started, stopped or signalled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServersError {
    /// The binaries are not installed; the text includes the install command.
    #[error(transparent)]
    Missing(#[from] MissingServers),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// The attempted action, with its path or program.
        action: String,
        #[source]
        source: io::Error,
    },
    /// Another live process uses the directory.
    #[error("{} is in use by process {pid}", dir.display())]
    InUse {
        dir: PathBuf,
        /// The owner, or a server left by an earlier owner that does not stop.
        pid: i32,
    },
    /// The data directory belongs to another user, so the server would refuse it.
    #[error("{} belongs to user id {owner}, not {expected}: remove it or run as its owner", dir.display())]
    ForeignDirectory {
        dir: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// User id of the server's account.
        expected: u32,
    },
    /// The cluster needs a PostgreSQL version that is not installed.
    #[error("{} was made by PostgreSQL {wanted}, which is not installed: install it or remove the directory",
        dir.display())]
    OtherVersion {
        dir: PathBuf,
        /// Major version that made the cluster.
        wanted: u32,
    },
    /// A program of the installation (`initdb`, `pg_basebackup`, `pg_ctl`, the single-user server) failed.
    #[error("{program} failed: {output}")]
    Tool {
        program: &'static str,
        /// The end of its output.
        output: String,
    },
    /// The server exited or was not ready in time.
    #[error("{server} did not start ({reason}); the end of {}:\n{tail}", log.display())]
    DidNotStart {
        /// Name of the server.
        server: &'static str,
        /// Exit status, or the time limit that passed.
        reason: String,
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// The server survived SIGKILL beyond the time limit.
    #[error("{server} (process {pid}) did not stop")]
    DidNotStop {
        /// Name of the server.
        server: &'static str,
        /// Process id.
        pid: i32,
    },
    /// The operation needs a running server.
    #[error("{server} is not running")]
    NotRunning {
        /// Name of the server.
        server: &'static str,
    },
    /// The runtime ended before a blocking operation completed.
    #[error("the runtime ended before {server} was handled")]
    Cancelled {
        /// Name of the server.
        server: &'static str,
    },
}

impl ServersError {
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}
