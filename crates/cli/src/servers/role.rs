//! A role of Longhaul as a process of its own: the same program, under the same guard as the servers it works on.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use super::{
    account::Account,
    error::ServersError,
    guard::{Guarded, Launch, StopSignal},
};

/// How to start a role.
#[derive(Debug, Clone)]
pub struct Role {
    /// The program; this one, usually.
    pub program: PathBuf,
    /// The command and its flags.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Where it runs.
    pub dir: PathBuf,
    /// What it says is added to this file.
    pub log: PathBuf,
}

/// A running role. It ends with its owner, even with one that is killed.
#[derive(Debug)]
pub struct RoleProcess {
    run: Guarded,
}

impl RoleProcess {
    /// Starts the process; whether it can do its work yet is for the caller to find out.
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

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.run.server().as_raw_nonzero().get()
    }

    /// Whether it has ended by itself.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.run.exited().is_some()
    }

    /// Stops it where it is (SIGSTOP): its connections stay open and it does not know.
    pub fn pause(&self) {
        self.run.pause();
    }

    /// Ends [`RoleProcess::pause`].
    pub fn resume(&self) {
        self.run.resume();
    }

    /// `kill -9`; returns when it is gone.
    ///
    /// # Errors
    /// It survives.
    pub async fn kill(self) -> Result<(), ServersError> {
        blocking(move || self.run.kill()).await
    }

    /// Asks it to end (SIGTERM) and waits; killed after `grace`.
    ///
    /// # Errors
    /// It survives even the kill.
    pub async fn stop(self, grace: Duration) -> Result<(), ServersError> {
        blocking(move || self.run.stop(grace)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ServersError> + Send + 'static,
) -> Result<T, ServersError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(ServersError::Cancelled { server: "the role" }))
}
