//! One run of a server process, or of a role of Longhaul, under a guard process.
//!
//! The guard is a small shell script: it is the server's parent and holds the read end of a pipe. When the pipe
//! closes, because the owner closed it or died, the guard stops the server. Both run in a process group of their own,
//! so that Ctrl-C in a terminal reaches only the owner, which decides when the servers stop.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, kill_process};

use crate::account::Account;
use crate::error::ServersError;
use crate::process_tree::{kill_tree, signal_tree};

const SCRIPT: &str = include_str!("guard.sh");

/// Time limit after SIGKILL. A killed process is gone in milliseconds; the limit allows for a machine that swaps.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// The signal for a graceful stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// PostgreSQL's fast shutdown: open transactions are rolled back, a checkpoint is written.
    Interrupt,
    /// The normal shutdown of Redis and of Longhaul's roles.
    Terminate,
}

impl StopSignal {
    fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "INT",
            Self::Terminate => "TERM",
        }
    }

    fn signal(self) -> Signal {
        match self {
            Self::Interrupt => Signal::INT,
            Self::Terminate => Signal::TERM,
        }
    }
}

/// The command line and environment of one run of a server.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) server: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// The complete environment; `None` inherits this process's.
    pub(crate) env: Option<Vec<(String, String)>>,
    pub(crate) dir: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) account: Account,
    pub(crate) stop: StopSignal,
    /// Directory that the guard removes if the owner ends without having stopped the server.
    pub(crate) scratch: Option<PathBuf>,
}

/// A running server. Dropping it also stops the server, but only [`Guarded::stop`] waits for its end.
#[derive(Debug)]
pub(crate) struct Guarded {
    launch: Launch,
    server: Pid,
    exit: Arc<Exit>,
    /// Write end of the guard's pipe; closing it makes the guard stop the server.
    _pipe: ChildStdin,
}

impl Guarded {
    pub(crate) fn spawn(launch: Launch) -> Result<Self, ServersError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "longhaul-guard"]).arg(&launch.log).arg(launch.stop.name());
        command.arg(launch.scratch.clone().unwrap_or_default()).arg(&launch.program).args(&launch.args);
        if let Some(env) = &launch.env {
            command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        }
        command.current_dir(&launch.dir).env("LC_ALL", "C").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let starting = || format!("start {}", launch.program.display());
        let mut guard = launch.account.apply(&mut command).spawn().map_err(ServersError::io(starting()))?;
        let (Some(pipe), Some(stdout)) = (guard.stdin.take(), guard.stdout.take()) else {
            return Err(ServersError::io(starting())(std::io::ErrorKind::BrokenPipe.into()));
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(ServersError::io(starting()))?;
        let server = line
            .trim()
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(ServersError::NotRunning { server: launch.server })?;
        let exit = Exit::of(guard).map_err(ServersError::io(starting()))?;
        Ok(Self { launch, server, exit, _pipe: pipe })
    }

    pub(crate) fn server(&self) -> Pid {
        self.server
    }

    /// The server's exit status; `None` while it runs.
    pub(crate) fn exited(&self) -> Option<ExitStatus> {
        self.exit.wait(Duration::ZERO)
    }

    /// A handle whose [`Exit::ended`] resolves when the server has ended.
    pub(crate) fn exit(&self) -> Arc<Exit> {
        Arc::clone(&self.exit)
    }

    /// Sends the stop signal, waits `grace`, then kills the server.
    pub(crate) fn stop(self, grace: Duration) -> Result<(), ServersError> {
        if self.exited().is_some() {
            return Ok(());
        }
        // Resume first: a stopped process does not handle the signal.
        signal_tree(self.server, Signal::CONT);
        let _ = kill_process(self.server, self.launch.stop.signal());
        if self.exit.wait(grace).is_some() { Ok(()) } else { self.kill() }
    }

    /// Kills the server and its children with SIGKILL.
    pub(crate) fn kill(self) -> Result<(), ServersError> {
        if self.exited().is_none() && !kill_tree(self.server, KILL_LIMIT) {
            return Err(ServersError::DidNotStop {
                server: self.launch.server,
                pid: self.server.as_raw_nonzero().get(),
            });
        }
        self.exit.wait(KILL_LIMIT);
        Ok(())
    }

    /// Sends SIGSTOP to the server and its children.
    pub(crate) fn pause(&self) {
        signal_tree(self.server, Signal::STOP);
        // The second pass catches a child that was forked while the first one read the list.
        signal_tree(self.server, Signal::STOP);
    }

    /// Sends SIGCONT after a [`Guarded::pause`].
    pub(crate) fn resume(&self) {
        signal_tree(self.server, Signal::CONT);
    }
}

/// The exit of a guard, observed by a waiting thread.
#[derive(Debug)]
pub(crate) struct Exit {
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
    ended: tokio::sync::Semaphore,
}

impl Exit {
    fn of(mut guard: Child) -> std::io::Result<Arc<Self>> {
        let exit =
            Arc::new(Self { status: Mutex::new(None), changed: Condvar::new(), ended: tokio::sync::Semaphore::new(0) });
        let seen = Arc::clone(&exit);
        // The thread owns the guard handle and ends with the guard, which ends with its server.
        std::thread::Builder::new().name("server-exit".to_owned()).spawn(move || {
            let status = guard.wait().unwrap_or_else(|_| ExitStatus::from_raw(0));
            *seen.status.lock() = Some(status);
            seen.changed.notify_all();
            seen.ended.close();
        })?;
        Ok(exit)
    }

    fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let mut status = self.status.lock();
        self.changed.wait_while_for(&mut status, |status| status.is_none(), limit);
        *status
    }

    /// Resolves when the process has ended. Cancel-safe.
    pub(crate) async fn ended(&self) {
        // The semaphore never has a permit: `acquire` returns only when it is closed.
        let _ = self.ended.acquire().await;
    }
}
