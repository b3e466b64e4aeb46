//! A sandbox process in a chosen mode and as a chosen user, with its client.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::{
        fd::AsRawFd,
        unix::{fs::chown, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use longhaul_guards::http::{self, HttpOptions};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, geteuid, kill_process},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::support::wait::eventually;

/// The program; see `tests/Cargo.toml`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
/// Time limit of a wait. A service runs its self-test before it listens, which is slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// First user id for the next service's runs. Services with common users would count each other's tasks.
static NEXT_USERS: AtomicU32 = AtomicU32::new(100_000);
/// Value in the service's environment that no code may see.
pub(crate) const SECRET: &str = "hunter2-in-the-environment";
/// Environment variable with the modes that must work on this machine, separated by commas (`.ci/run` sets it).
/// Without it, a mode that is missing would pass all its tests.
const DEMANDED: &str = "LONGHAUL_TEST_SANDBOX_MODES";
/// Unprivileged user id, for services that are not root although the tests are.
const NOBODY: u32 = 65_534;

/// Mode of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Namespaces,
    Landlock,
    /// Runs without confinement: the twin, in which attempts get through.
    Unconfined,
}

/// User of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum As {
    /// The user of the tests; as root, services run code as separate users.
    Self_,
    /// Never root, so that the code shares the user of its service.
    Unprivileged,
}

/// Settings that a test changes.
pub(crate) type Settings<'a> = &'a [(&'a str, &'a str)];

/// A running sandbox; killed when dropped.
pub(crate) struct Service {
    child: Child,
    pub(crate) url: String,
    pub(crate) user: u32,
    dir: TempDir,
    log: PathBuf,
}

impl Service {
    /// Starts a sandbox. Returns `None` if this machine does not allow the mode, and panics if the mode is
    /// demanded.
    pub(crate) async fn start(mode: Mode, user: As, settings: Settings<'_>) -> Option<Self> {
        if !is_allowed(mode, user) {
            assert!(
                !is_demanded(mode, user),
                "{mode:?} as {user:?} is not possible on this machine, but {DEMANDED} has it"
            );
            eprintln!("{mode:?} as {user:?} is not possible on this machine");
            return None;
        }
        let mut service = Self::spawn(mode, user, settings);
        let address = eventually("the sandbox listens", PATIENCE, async || {
            let log = service.log();
            if let Some(status) = service.child.try_wait().unwrap() {
                panic!("the sandbox ended with {status}: {log}");
            }
            let said = log.lines().find_map(|line| line.strip_prefix("the sandbox listens on "));
            said.and_then(|said| said.split_once(',')).map(|(address, _)| address.to_owned()).ok_or(log)
        })
        .await;
        service.url = format!("http://{address}");
        let expected = ["namespaces", "landlock", "none"][mode as usize];
        assert_eq!(service.health().await["confinement"], expected);
        Some(service)
    }

    /// Only starts the process; for services that must refuse to serve.
    pub(crate) fn spawn(mode: Mode, user: As, settings: Settings<'_>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        let program = File::open(PROGRAM).unwrap();
        let mut command = Command::new(PROGRAM);
        let drops = user == As::Unprivileged && geteuid().is_root();
        if drops {
            // Other users may lack access to the program's path; an open file can be executed from anywhere.
            fcntl_setfd(&program, FdFlags::empty()).unwrap();
            command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
            command.uid(NOBODY).gid(NOBODY);
            chown(&scratch, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        // The code's user must be able to enter these directories.
        for path in [dir.path(), &scratch] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let log = dir.path().join("log");
        command
            .arg("sandbox")
            .env_clear()
            .env("DATABASE_URL", format!("postgres://u:{SECRET}@127.0.0.1:1/x"))
            .env("LONGHAUL__SANDBOX__LISTEN", "127.0.0.1:0")
            .env("LONGHAUL__SANDBOX__SCRATCH_DIR", &scratch)
            .env("LONGHAUL__SANDBOX__FIRST_USER", NEXT_USERS.fetch_add(100, Ordering::Relaxed).to_string())
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        match mode {
            Mode::Namespaces => _ = command.env("LONGHAUL__SANDBOX__CONFINEMENT", "namespaces"),
            Mode::Landlock => _ = command.env("LONGHAUL__SANDBOX__CONFINEMENT", "landlock"),
            Mode::Unconfined => {
                command.arg("--dangerously-run-unconfined");
                command
                    .env("LONGHAUL__SANDBOX__CONFINEMENT", "namespaces")
                    .env("LONGHAUL__SANDBOX__BWRAP", "/bin/false");
            }
        }
        for (key, value) in settings {
            command.env(format!("LONGHAUL__SANDBOX__{}", key.to_uppercase()), value);
        }
        let child = command.spawn().unwrap();
        let user = if drops { NOBODY } else { geteuid().as_raw() };
        Self { child, url: String::new(), user, dir, log }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A directory on the service's machine for files of the tests.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the working directories of the current runs.
    pub(crate) fn scratch(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("scratch")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        eventually("the sandbox ends", PATIENCE, async || self.child.try_wait().unwrap().ok_or("it runs")).await
    }

    pub(crate) async fn health(&self) -> Value {
        client().get(format!("{}/health", self.url)).send().await.unwrap().json().await.unwrap()
    }

    /// Returns status and body of a request.
    pub(crate) async fn ask(&self, body: &Value) -> (u16, Value) {
        ask(&self.url, body).await
    }

    /// Runs Python code and returns the body.
    pub(crate) async fn python(&self, code: &str, input: Value) -> Value {
        self.ask(&json!({"language": "python", "code": code, "input": input, "timeout_seconds": 15})).await.1
    }

    pub(crate) async fn bash(&self, code: &str) -> Value {
        self.ask(&json!({"language": "bash", "code": code, "timeout_seconds": 15})).await.1
    }

    /// Waits until no process or file of any run is left.
    pub(crate) async fn settles(&self) {
        eventually("nothing of the run is left", PATIENCE, async || {
            let (left, files) = (below(self.pid()), self.scratch());
            if left.is_empty() && files.is_empty() { Ok(()) } else { Err(format!("{left:?} {files:?}")) }
        })
        .await;
        // The service still serves.
        assert_eq!(self.python("result = 6 * 7", Value::Null).await["result"], 42, "{}", self.log());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the sandbox said: {}", self.log());
        }
    }
}

type Running = BTreeMap<(Mode, As), Weak<Service>>;

/// The service that tests of one mode share while any of them runs.
pub(crate) async fn shared(mode: Mode, user: As) -> Option<Arc<Service>> {
    static SHARED: LazyLock<Mutex<Running>> = LazyLock::new(Mutex::default);
    let mut shared = SHARED.lock().await;
    if let Some(service) = shared.get(&(mode, user)).and_then(Weak::upgrade) {
        return Some(service);
    }
    let service = Arc::new(Service::start(mode, user, &[]).await?);
    shared.insert((mode, user), Arc::downgrade(&service));
    Some(service)
}

/// Returns status and body of a request to a sandbox.
pub(crate) async fn ask(url: &str, body: &Value) -> (u16, Value) {
    let answer = client().post(format!("{url}/v1/execute")).json(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

pub(crate) fn client() -> reqwest::Client {
    http::client(&HttpOptions::default()).unwrap()
}

/// Returns true if the machine allows a mode for the user, and the user is not the test's own under another name. Does
/// not use the sandbox, so that one which wrongly does not start fails its tests.
pub(crate) fn is_allowed(mode: Mode, user: As) -> bool {
    if user == As::Unprivileged && !geteuid().is_root() {
        // The same as `Self_`.
        return false;
    }
    let mut command = match mode {
        Mode::Unconfined => return true,
        Mode::Namespaces => {
            let mut command = Command::new("bwrap");
            command.args(["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--", "/bin/true"]);
            command
        }
        Mode::Landlock => {
            let mut command = Command::new("/usr/bin/python3");
            let asks = "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1)";
            command.args(["-c", asks]);
            command
        }
    };
    if geteuid().is_root() {
        // Code never runs as root.
        command.uid(NOBODY).gid(NOBODY);
    }
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests says what this machine must be able to do")]
fn is_demanded(mode: Mode, user: As) -> bool {
    let demanded = std::env::var(DEMANDED).unwrap_or_default();
    let modes: Vec<&str> = demanded.split(',').filter(|name| !name.is_empty()).collect();
    let known = modes.iter().all(|name| ["namespaces", "landlock"].contains(name));
    assert!(known, "{DEMANDED} is namespaces, landlock or both, not {demanded}");
    let name = match mode {
        Mode::Namespaces => "namespaces",
        Mode::Landlock => "landlock",
        Mode::Unconfined => return false,
    };
    // Tests that are not root cover every mode as `Self_`.
    modes.contains(&name) && (user == As::Self_ || geteuid().is_root())
}

/// Returns the processes below one, without zombies.
pub(crate) fn below(pid: i32) -> Vec<String> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((head, tail)) = stat.rsplit_once(')') else { continue };
        let tail: Vec<&str> = tail.split_whitespace().collect();
        let id: i32 = head.split_whitespace().next().unwrap().parse().unwrap();
        if tail[0] != "Z" {
            parents.push((id, tail[1].parse::<i32>().unwrap(), head.to_owned()));
        }
    }
    let mut found = vec![pid];
    let mut names = Vec::new();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        for (id, _, name) in parents.iter().filter(|(_, of, _)| *of == parent) {
            found.push(*id);
            names.push(name.clone());
        }
        next += 1;
    }
    names
}

/// Returns the processes of this machine with a text in their command line.
pub(crate) fn with_argument(marker: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(marker)).collect()
}
