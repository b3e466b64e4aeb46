//! The data directory of a private PostgreSQL: created atomically, checked before each use.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::binaries::PostgresInstall;
use crate::error::ServersError;
use crate::process_tree::is_alive;
use crate::server_dir::{Keep, ServerDir};

pub(crate) const NAME: &str = "PostgreSQL";
/// Name of the superuser and of the database.
pub(crate) const OWNER: &str = "longhaul";

const PASSWORD_FILE: &str = "password";
/// Longest wait for a server whose owner was killed: its guard is stopping it.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// Longest promotion, in seconds.
const PROMOTE_SECONDS: &str = "60";
const TOOL_TAIL_CHARS: usize = 2_000;

/// A cluster ready to be served by the binaries in `bin`.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) server_dir: ServerDir,
    pub(crate) data: PathBuf,
    pub(crate) bin: PathBuf,
    pub(crate) password: String,
}

impl Cluster {
    /// Opens the cluster in `server_dir`, creating it with the authentication method `auth` if there is none.
    /// `installs` is newest first and not empty.
    pub(crate) fn open(server_dir: ServerDir, installs: &[PostgresInstall], auth: &str) -> Result<Self, ServersError> {
        let data = server_dir.dir.join("data");
        let made_by = fs::read_to_string(data.join("PG_VERSION")).ok().and_then(|text| text.trim().parse::<u32>().ok());
        let install = installs.iter().find(|install| made_by.is_none_or(|major| major == install.major));
        let Some(install) = install else {
            return Err(ServersError::OtherVersion { dir: data, wanted: made_by.unwrap_or_default() });
        };
        let bin = install.bin.clone();
        let password = if made_by.is_some() {
            let path = server_dir.dir.join(PASSWORD_FILE);
            fs::read_to_string(&path).map_err(ServersError::io(format!("read {}", path.display())))?
        } else {
            // 122 random bits cannot be guessed over loopback.
            uuid::Uuid::new_v4().simple().to_string()
        };
        let cluster = Self { server_dir, data, bin, password };
        if made_by.is_none() {
            cluster.make(auth)?;
        }
        cluster.wait_for_predecessor()?;
        Ok(cluster)
    }

    /// Copies this running cluster, which listens on a loopback `port`, into `server_dir`. The copy streams from it.
    /// Not atomic, as [`Self::make`] is: a standby is started once.
    pub(crate) fn copy_for_standby(&self, server_dir: ServerDir, port: u16) -> Result<Self, ServersError> {
        let data = server_dir.dir.join("data");
        let copy = Self { server_dir, data, bin: self.bin.clone(), password: self.password.clone() };
        copy.server_dir.write_private(PASSWORD_FILE, &copy.password)?;
        let mut backup = copy.tool("pg_basebackup");
        backup.env("PGPASSWORD", &copy.password).arg("-D").arg(&copy.data);
        // Keeps the connection's parameters, its password included, for the standby.
        backup.args(["--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-password"]);
        backup.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", OWNER]);
        check("pg_basebackup", backup.output())?;
        Ok(copy)
    }

    /// Ends the recovery of a standby, and waits for that.
    pub(crate) fn promote(&self) -> Result<(), ServersError> {
        let mut promote = self.tool("pg_ctl");
        promote.arg("promote").arg("-D").arg(&self.data).args(["-w", "-t", PROMOTE_SECONDS]);
        check("pg_ctl promote", promote.output())
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.data.join("postmaster.pid")
    }

    /// Creates the cluster in a temporary directory and renames it, so that an interrupted start leaves no partial
    /// cluster.
    fn make(&self, auth: &str) -> Result<(), ServersError> {
        let partial = self.server_dir.dir.join("data.partial");
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(ServersError::io(format!("remove {}", partial.display())))?;
        }
        let password_file = self.server_dir.write_private(PASSWORD_FILE, &self.password)?;
        let mut initdb = self.tool("initdb");
        initdb.arg("-D").arg(&partial).args(["-U", OWNER, "-E", "UTF8", "--locale=C", "--no-instructions"]);
        initdb.arg(format!("--auth={auth}")).arg("--pwfile").arg(&password_file);
        match self.server_dir.keep {
            Keep::Kept => {}
            // Skip fsync while creating a temporary cluster; the running server still syncs.
            Keep::Removed => {
                initdb.arg("--no-sync");
            }
        }
        check("initdb", initdb.output())?;
        self.create_database(&partial)?;
        fs::rename(&partial, &self.data).map_err(ServersError::io(format!("rename {}", partial.display())))
    }

    /// Uses the single-user mode, so that no client program is needed.
    fn create_database(&self, data: &Path) -> Result<(), ServersError> {
        let mut single = self.tool("postgres");
        single.args(["--single", "-D"]).arg(data).arg("postgres");
        single.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = || {
            let mut child = single.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                writeln!(stdin, "create database {OWNER}")?;
            }
            child.wait_with_output()
        };
        check("postgres --single", run())
    }

    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        // The tools warn and may fail if they cannot read the working directory.
        command.current_dir(&self.server_dir.dir).env("LC_ALL", "C").stdin(Stdio::null());
        self.server_dir.account.apply(&mut command);
        command
    }

    /// Waits for the server of a killed owner to exit. A server that stays belongs to another owner.
    fn wait_for_predecessor(&self) -> Result<(), ServersError> {
        let deadline = Instant::now() + PREDECESSOR_LIMIT;
        while let Some(pid) = self.live_postmaster() {
            if Instant::now() > deadline {
                return Err(ServersError::InUse { dir: self.data.clone(), pid: pid.as_raw_nonzero().get() });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The process in the pid file, if it is alive and a `postgres`: a stale file may name a reused pid.
    fn live_postmaster(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        let pid = text.lines().next()?.trim().parse().ok().and_then(Pid::from_raw)?;
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
        let is_postgres = name.map_or(true, |name| name.trim() == "postgres");
        (is_postgres && is_alive(pid)).then_some(pid)
    }
}

fn check(program: &'static str, result: std::io::Result<Output>) -> Result<(), ServersError> {
    let output = result.map_err(ServersError::io(format!("run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let skip = text.chars().count().saturating_sub(TOOL_TAIL_CHARS);
    Err(ServersError::Tool { program, output: text.chars().skip(skip).collect() })
}
