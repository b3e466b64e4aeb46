//! A private server that can be stopped and restarted in the same directory and on the same port.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::error::ServersError;
use crate::guard::{Guarded, Launch};
use crate::server_dir::ServerDir;

/// Time for the checkpoint of a shutdown on a slow disk; then the server is killed, from which both servers recover.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// Longest start, crash recovery included.
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const LOG_TAIL_LINES: usize = 12;

/// Readiness check of a server.
#[derive(Debug, Clone)]
pub(crate) enum Probe {
    /// The status line that the postmaster keeps in its pid file, as `pg_ctl` reads it: needs no client and no login.
    PostmasterFile(PathBuf),
    /// The answer to an authenticated PING.
    RedisPing {
        /// Loopback port.
        port: u16,
        password: String,
    },
}

/// A private server process. All methods may be called from any task. Dropping the last handle stops the server and
/// waits for its end.
#[derive(Debug)]
pub struct PrivateServer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    launch: Launch,
    server_dir: ServerDir,
    probe: Probe,
    port: u16,
    running: Mutex<Option<Guarded>>,
}

impl PrivateServer {
    /// Starts the server and waits until it accepts connections.
    pub(crate) fn launch(launch: Launch, server_dir: ServerDir, probe: Probe, port: u16) -> Result<Self, ServersError> {
        // Start a new log and keep one old log, so that a kept directory does not fill up.
        let _ = std::fs::rename(&launch.log, launch.log.with_extension("log.1"));
        let inner = Inner { launch, server_dir, probe, port, running: Mutex::new(None) };
        inner.start()?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.inner.port))
    }

    /// The directory of the server's files: the requested one, or a substitute if the server's account cannot reach
    /// it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.server_dir.dir
    }

    #[must_use]
    pub fn log(&self) -> &Path {
        &self.inner.launch.log
    }

    /// Process id of the server itself; `None` while it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        let running = self.inner.lock();
        running.as_ref().filter(|run| run.exited().is_none()).map(|run| run.server().as_raw_nonzero().get())
    }

    /// Resolves when the current run has ended; at once if there is none. Cancel-safe.
    pub async fn ended(&self) {
        let exit = self.inner.lock().as_ref().map(Guarded::exit);
        if let Some(exit) = exit {
            exit.ended().await;
        }
    }

    /// Starts the server again in the same directory and on the same port. Does nothing if it runs.
    ///
    /// # Errors
    ///
    /// The server does not start.
    pub async fn start_again(&self) -> Result<(), ServersError> {
        self.blocking(Inner::start).await
    }

    /// Asks the server to shut down, waits, and kills it after a grace period. Does nothing if it is stopped.
    ///
    /// # Errors
    ///
    /// The server survives SIGKILL.
    pub async fn stop(&self) -> Result<(), ServersError> {
        self.blocking(Inner::stop).await
    }

    /// # Errors
    ///
    /// As for [`PrivateServer::stop`] and [`PrivateServer::start_again`].
    pub async fn restart(&self) -> Result<(), ServersError> {
        self.stop().await?;
        self.start_again().await
    }

    /// Sends SIGKILL to the server and all its children.
    ///
    /// # Errors
    ///
    /// A process survives SIGKILL.
    pub async fn kill(&self) -> Result<(), ServersError> {
        self.blocking(Inner::kill).await
    }

    /// Sends SIGSTOP to the server and its children: connections stay open, requests get no answer.
    ///
    /// # Errors
    ///
    /// The server is not running.
    pub async fn pause(&self) -> Result<(), ServersError> {
        self.blocking(|inner| inner.with_running(Guarded::pause)).await
    }

    /// Sends SIGCONT after a [`PrivateServer::pause`].
    ///
    /// # Errors
    ///
    /// The server is not running.
    pub async fn resume(&self) -> Result<(), ServersError> {
        self.blocking(|inner| inner.with_running(Guarded::resume)).await
    }

    async fn blocking(&self, work: fn(&Inner) -> Result<(), ServersError>) -> Result<(), ServersError> {
        let inner = Arc::clone(&self.inner);
        let server = inner.launch.server;
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(done) => done,
            Err(_) => Err(ServersError::Cancelled { server }),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.running.lock()
    }

    fn start(&self) -> Result<(), ServersError> {
        let mut running = self.lock();
        if running.as_ref().is_some_and(|run| run.exited().is_none()) {
            return Ok(());
        }
        let run = Guarded::spawn(self.launch.clone())?;
        let deadline = Instant::now() + START_LIMIT;
        while !self.probe.answers(&run) {
            let reason = match run.exited() {
                Some(status) => exit_text(status),
                None if Instant::now() > deadline => format!("not ready after {} s", START_LIMIT.as_secs()),
                None => {
                    std::thread::sleep(POLL);
                    continue;
                }
            };
            run.kill()?;
            let log = self.launch.log.clone();
            let tail = tail(&log);
            return Err(ServersError::DidNotStart { server: self.launch.server, reason, log, tail });
        }
        *running = Some(run);
        Ok(())
    }

    fn stop(&self) -> Result<(), ServersError> {
        self.lock().take().map_or(Ok(()), |run| run.stop(STOP_GRACE))
    }

    fn kill(&self) -> Result<(), ServersError> {
        self.lock().take().map_or(Ok(()), Guarded::kill)
    }

    fn with_running(&self, act: fn(&Guarded)) -> Result<(), ServersError> {
        let running = self.lock();
        let run = running.as_ref().filter(|run| run.exited().is_none());
        run.map(act).ok_or(ServersError::NotRunning { server: self.launch.server })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(error = %error, "a private server is left to its guard");
        }
    }
}

impl Probe {
    fn answers(&self, run: &Guarded) -> bool {
        match self {
            Self::PostmasterFile(path) => {
                // Line 1 is the postmaster's pid, line 8 its state. The file of an earlier run names another pid.
                let Ok(text) = std::fs::read_to_string(path) else { return false };
                let own = run.server().as_raw_nonzero().to_string();
                text.lines().next().map(str::trim) == Some(own.as_str())
                    && text.lines().nth(7).map(str::trim) == Some("ready")
            }
            Self::RedisPing { port, password } => redis_answers(*port, password).unwrap_or(false),
        }
    }
}

fn redis_answers(port: u16, password: &str) -> std::io::Result<bool> {
    let limit = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(format!("AUTH {password}\r\nPING\r\n").as_bytes())?;
    // Another server on the same port would refuse the password.
    let mut reply = [0_u8; 12];
    stream.read_exact(&mut reply)?;
    Ok(&reply == b"+OK\r\n+PONG\r\n")
}

fn exit_text(status: ExitStatus) -> String {
    status.code().map_or_else(|| "killed".to_owned(), |code| format!("exit status {code}"))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
