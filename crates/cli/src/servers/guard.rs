//! One run of a server process, or of a role of Longhaul, under its guard.
//!
//! The guard is a small shell script that is the server's parent and holds the read end of a pipe. When the pipe ends,
//! because the owner closed it or died in whatever way, the guard stops the server. Both live in a process group of
//! their own, so that Ctrl-C in a terminal reaches the owner alone and the owner decides when the servers stop.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::account::Account;
use super::error::ServersError;
use super::process_tree::{kill_tree, signal_tree};

const SCRIPT: &str = include_str!("guard.sh");

/// A killed process is gone in milliseconds; this is for a machine that swaps.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How to ask a server to stop in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopSignal {
    /// PostgreSQL's fast shutdown: open transactions are rolled back, a checkpoint is written.
    Interrupt,
    /// Redis' ordinary shutdown.
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

/// Everything that one run of a server needs.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) server: &'static str,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    /// Its whole environment, where it is not ours.
    pub(super) env: Option<Vec<(String, String)>>,
    pub(super) dir: PathBuf,
    pub(super) log: PathBuf,
    pub(super) account: Account,
    pub(super) stop: StopSignal,
    /// Removed by the guard when the owner ends without having stopped the server.
    pub(super) scratch: Option<PathBuf>,
}

/// A running server. Dropping it stops the server too, but only [`Guarded::stop`] waits for that.
#[derive(Debug)]
pub(super) struct Guarded {
    launch: Launch,
    server: Pid,
    exit: Arc<Exit>,
    /// The write end of the guard's pipe; its close is the guard's signal.
    _pipe: ChildStdin,
}

impl Guarded {
    pub(super) fn spawn(launch: Launch) -> Result<Self, ServersError> {
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

    pub(super) fn server(&self) -> Pid {
        self.server
    }

    /// How the server ended, once it has.
    pub(super) fn exited(&self) -> Option<ExitStatus> {
        self.exit.wait(Duration::ZERO)
    }

    /// Resolves when the server has ended, for whatever reason. Cancel-safe.
    pub(super) fn exit(&self) -> Arc<Exit> {
        Arc::clone(&self.exit)
    }

    /// Asks the server to stop, waits `grace`, then kills it.
    pub(super) fn stop(self, grace: Duration) -> Result<(), ServersError> {
        if self.exited().is_some() {
            return Ok(());
        }
        // A paused server would not hear the next signal.
        signal_tree(self.server, Signal::CONT);
        let _ = kill_process(self.server, self.launch.stop.signal());
        if self.exit.wait(grace).is_some() { Ok(()) } else { self.kill() }
    }

    /// Kills the server and its children, as a power cut would.
    pub(super) fn kill(self) -> Result<(), ServersError> {
        if self.exited().is_none() && !kill_tree(self.server, KILL_LIMIT) {
            return Err(ServersError::DidNotStop {
                server: self.launch.server,
                pid: self.server.as_raw_nonzero().get(),
            });
        }
        self.exit.wait(KILL_LIMIT);
        Ok(())
    }

    /// Freezes the server and its children where they are.
    pub(super) fn pause(&self) {
        signal_tree(self.server, Signal::STOP);
        // A child that was started while the list was read is in the second one.
        signal_tree(self.server, Signal::STOP);
    }

    /// Ends [`Guarded::pause`].
    pub(super) fn resume(&self) {
        signal_tree(self.server, Signal::CONT);
    }
}

/// The end of a guard, known as soon as a thread that waits for it sees it.
#[derive(Debug)]
pub(super) struct Exit {
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
    ended: tokio::sync::Semaphore,
}

impl Exit {
    fn of(mut guard: Child) -> std::io::Result<Arc<Self>> {
        let exit =
            Arc::new(Self { status: Mutex::new(None), changed: Condvar::new(), ended: tokio::sync::Semaphore::new(0) });
        let seen = Arc::clone(&exit);
        // Owned by the guard: the thread ends with it, and the guard ends with its server.
        std::thread::Builder::new().name("server-exit".to_owned()).spawn(move || {
            let status = guard.wait().unwrap_or_else(|_| ExitStatus::from_raw(0));
            *seen.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
            seen.changed.notify_all();
            seen.ended.close();
        })?;
        Ok(exit)
    }

    fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(status, limit, |status| status.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Resolves at the end of the process. Cancel-safe.
    pub(super) async fn ended(&self) {
        // Never given a permit: acquiring ends only by the close.
        let _ = self.ended.acquire().await;
    }
}
