//! A role of Longhaul as a child process, under the same guard as the private servers.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use crate::{
    account::Account,
    error::ServersError,
    guard::{Guarded, Launch, StopSignal},
};

/// The command line of a role.
#[derive(Debug, Clone)]
pub struct Role {
    /// Program to run, usually this one.
    pub program: PathBuf,
    /// Subcommand and flags.
    pub args: Vec<String>,
    /// The complete environment.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub dir: PathBuf,
    /// File to which standard output and standard error are appended.
    pub log: PathBuf,
}

/// A running role. It ends with its owner, even if the owner is killed.
#[derive(Debug)]
pub struct RoleProcess {
    run: Guarded,
}

impl RoleProcess {
    /// Starts the process. Does not wait until the role is ready.
    ///
    /// # Errors
    /// The program cannot be started.
    pub async fn start(role: Role) -> Result<Self, ServersError> {
        let launch = Launch {
            server: "the role",
            program: role.program,
            args: role.args.into_iter().map(OsString::from).collect(),
            env: Some(role.env),
            dir: role.dir,
            log: role.log,
            account: Account::own_account(),
            stop: StopSignal::Terminate,
            scratch: None,
        };
        blocking(move || Guarded::spawn(launch)).await.map(|run| Self { run })
    }

    #[must_use]
    pub fn pid(&self) -> i32 {
        self.run.server().as_raw_nonzero().get()
    }

    /// Returns true if the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.run.exited().is_some()
    }

    /// Sends SIGSTOP: the process freezes and its connections stay open.
    pub fn pause(&self) {
        self.run.pause();
    }

    /// Sends SIGCONT after a [`RoleProcess::pause`].
    pub fn resume(&self) {
        self.run.resume();
    }

    /// Sends SIGKILL and waits for the end.
    ///
    /// # Errors
    /// The process survives.
    pub async fn kill(self) -> Result<(), ServersError> {
        blocking(move || self.run.kill()).await
    }

    /// Sends SIGTERM and waits; sends SIGKILL after `grace`.
    ///
    /// # Errors
    /// The process survives SIGKILL.
    pub async fn stop(self, grace: Duration) -> Result<(), ServersError> {
        blocking(move || self.run.stop(grace)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ServersError> + Send + 'static,
) -> Result<T, ServersError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(ServersError::Cancelled { server: "the role" }))
}
