//! `longhaul sandbox-warden`: starts the confined process of one request, watches it, and ends its whole process
//! tree.
//!
//! Invariants: when the warden answers, no process of the run is left; when the service is gone (its end of the
//! connection closes), the run is ended; and the code cannot affect the warden. It is a process, not a thread of
//! the service, because it must still clean up after the service is killed.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::chown, net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, getrlimit, kill_process,
    kill_process_group, set_child_subreaper, set_dumpable_behavior, setrlimit, wait,
};
use tempfile::TempDir;

use crate::{
    bubblewrap, frames, proc_files,
    setup::{Confinement, Inside, Limit, Report, Setup},
    watch::{self, Watch},
};

/// Interval at which the first process is checked for its end; the answer is late by up to this much.
const TICK: Duration = Duration::from_millis(2);
/// Interval at which the run's usage is measured. A process can allocate some hundred MiB within it.
const MEASURE: Duration = Duration::from_millis(25);
/// Maximum time for killed processes to disappear. If it passes, the kernel is in trouble and the service is told.
const TO_DIE: Duration = Duration::from_secs(10);

/// Runs one request; standard input is the connection to the service.
///
/// # Errors
/// The service's message is invalid, or the service has closed the connection.
pub fn run() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_child_subreaper(Some(getpid()))?;
    let mut service = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let setup: Setup = serde_json::from_slice(&frames::read(&mut service)?)?;
    let request = frames::read(&mut service)?;
    let abandoned = watch_service(&service)?;
    let (report, answer) = match hold(&setup, request, &abandoned) {
        Ok(done) => done,
        Err(error) => (Report { exit_code: 125, limit: None, failure: Some(error.to_string()) }, Vec::new()),
    };
    frames::write(&mut service, &serde_json::to_vec(&report)?)?;
    frames::write(&mut service, &answer)
}

/// Sets the flag when the service closes its end.
fn watch_service(service: &UnixStream) -> io::Result<Arc<AtomicBool>> {
    let abandoned = Arc::new(AtomicBool::new(false));
    let (mut service, flag) = (service.try_clone()?, Arc::clone(&abandoned));
    thread::spawn(move || {
        // The service sends nothing more, so any return means that it has closed its end.
        let _ = service.read(&mut [0]);
        flag.store(true, Ordering::Relaxed);
    });
    Ok(abandoned)
}

fn hold(setup: &Setup, request: Vec<u8>, abandoned: &AtomicBool) -> io::Result<(Report, Vec<u8>)> {
    watch::check(setup.user.is_some())?;
    let work = WorkDir::make(setup)?;
    let (ours, theirs) = UnixStream::pair()?;
    let channel = Channel::open(ours, request, setup.limits.result_bytes)?;
    let started = Instant::now();
    let first = start(setup, work.path(), theirs)?;
    let ended = attend(first, setup, work.on_disk(), started, abandoned);
    let left = end_all(first);
    let (status, limit) = ended?;
    let status = status.or(left?).unwrap_or(128 + 9);
    let answer = channel.answer();
    let failure = work.remove().err().map(|error| format!("the working directory cannot be removed: {error}"));
    Ok((Report { exit_code: status, limit, failure }, answer))
}

/// Starts the init process, which confines itself and becomes the program, in a process group of its own.
fn start(setup: &Setup, work: &Path, channel: UnixStream) -> io::Result<Pid> {
    let (mut command, program) = match &setup.confinement {
        Confinement::Namespaces { bwrap, proc } => {
            let inner = bubblewrap::command(bwrap, *proc, &setup.readable, setup.limits.files_bytes)?;
            (inner.command, inner.program)
        }
        Confinement::Landlock | Confinement::Nothing => {
            let mut command = Command::new("/proc/self/exe");
            command.current_dir(work);
            (command, None)
        }
    };
    // A shared user also shares its count of tasks. Namespaces have a count of their own.
    let shares_user = setup.user.is_none() && !matches!(setup.confinement, Confinement::Namespaces { .. });
    let tasks = setup.limits.processes + if shares_user { proc_files::tasks_of_this_user() } else { 0 };
    let inside = Inside {
        program: setup.program.clone(),
        confinement: setup.confinement.clone(),
        limits: setup.limits.clone(),
        readable: setup.readable.clone(),
        work: work.to_owned(),
        tasks,
        spare: program.as_ref().map(std::os::fd::AsRawFd::as_raw_fd),
    };
    command.arg("sandbox-init").arg(serde_json::to_string(&inside)?);
    command.env_clear().stdin(OwnedFd::from(channel)).process_group(0);
    if let Some(user) = setup.user {
        command.uid(user).gid(user);
    }
    Ok(Pid::from_child(&command.spawn()?))
}

/// Waits until the first process ends, the deadline passes, a limit is exceeded, or the service closes the connection.
fn attend(
    first: Pid,
    setup: &Setup,
    on_disk: Option<&Path>,
    started: Instant,
    abandoned: &AtomicBool,
) -> io::Result<(Option<i32>, Option<Limit>)> {
    let deadline = started + Duration::from_millis(setup.limits.wall_ms);
    let mut watch = Watch::new(&setup.limits, &setup.confinement, on_disk, started);
    let mut measured = Instant::now();
    loop {
        while let Some((pid, status)) = reap()? {
            if pid == first {
                return Ok((Some(code(status)), None));
            }
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok((None, Some(Limit::Time)));
        }
        if abandoned.load(Ordering::Relaxed) {
            return Ok((None, None));
        }
        if now.duration_since(measured) >= MEASURE {
            if let Some(limit) = watch.exceeded() {
                return Ok((None, Some(limit)));
            }
            measured = Instant::now();
        }
        thread::sleep(TICK);
    }
}

/// Kills until no process is left. Returns the exit status of the first process if it ended here.
fn end_all(first: Pid) -> io::Result<Option<i32>> {
    let deadline = Instant::now() + TO_DIE;
    let mut ended = None;
    loop {
        // The group first: one atomic step, so that no process can fork away. The group is gone once its members
        // are.
        let _ = kill_process_group(first, Signal::KILL);
        for pid in watch::descendants().into_iter().filter_map(watch::pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == first => ended = Some(code(status)),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(rustix::io::Errno::CHILD) => return Ok(ended),
                Err(error) => return Err(error.into()),
            }
        }
        if Instant::now() >= deadline {
            return Err(io::Error::other("processes of the run cannot be killed"));
        }
        thread::sleep(TICK);
    }
}

/// Reaps a child that has ended: the first process or an orphan.
fn reap() -> io::Result<Option<(Pid, WaitStatus)>> {
    match wait(WaitOptions::NOHANG) {
        Ok(ended) => Ok(ended),
        Err(error) => Err(error.into()),
    }
}

fn code(status: WaitStatus) -> i32 {
    status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(125)
}

/// Carries the request to the code and the result back.
struct Channel {
    writing: JoinHandle<()>,
    reading: JoinHandle<Vec<u8>>,
}

impl Channel {
    fn open(stream: UnixStream, request: Vec<u8>, result_bytes: usize) -> io::Result<Self> {
        let (mut to, mut from) = (stream.try_clone()?, stream);
        let writing = thread::spawn(move || {
            // Code that ends before it has read the request is no error.
            let _ = to.write_all(&request);
            let _ = to.shutdown(Shutdown::Write);
        });
        // Leaves room for the report around the result. A longer answer was not written by the harness.
        let most = u64::try_from(result_bytes).unwrap_or(u64::MAX).saturating_add(64 << 10);
        let reading = thread::spawn(move || {
            let mut answer = Vec::new();
            let _ = (&mut from).take(most).read_to_end(&mut answer);
            let _ = io::copy(&mut from, &mut io::sink());
            answer
        });
        Ok(Self { writing, reading })
    }

    /// Call it when no writer is left; otherwise it blocks.
    fn answer(self) -> Vec<u8> {
        let answer = self.reading.join().unwrap_or_default();
        let _ = self.writing.join();
        answer
    }
}

/// Directory where the code starts and may write.
enum WorkDir {
    /// Made and removed by bubblewrap, in memory.
    Within,
    OnDisk(TempDir),
}

impl WorkDir {
    fn make(setup: &Setup) -> io::Result<Self> {
        if let Confinement::Namespaces { .. } = setup.confinement {
            return Ok(Self::Within);
        }
        // Canonical path, because the watch compares it with the paths in /proc.
        let scratch = setup.scratch.canonicalize()?;
        let made = tempfile::Builder::new().prefix("longhaul-sandbox-").tempdir_in(scratch)?;
        if let Some(user) = setup.user {
            chown(made.path(), Some(user), Some(user))?;
        }
        Ok(Self::OnDisk(made))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Within => Path::new(bubblewrap::WORK),
            Self::OnDisk(made) => made.path(),
        }
    }

    fn on_disk(&self) -> Option<&Path> {
        match self {
            Self::Within => None,
            Self::OnDisk(made) => Some(made.path()),
        }
    }

    fn remove(self) -> io::Result<()> {
        let Self::OnDisk(made) = self else { return Ok(()) };
        let path: PathBuf = made.path().to_owned();
        // Removing a deep tree needs an open file for each level.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let Err(error) = made.close() else { return Ok(()) };
        // These programs need no open file per level; chmod first opens directories that the code closed to its own
        // user.
        for [program, how, on] in [["chmod", "-R", "u+rwX"], ["rm", "-rf", "--one-file-system"]] {
            Command::new(program).args([how, on, "--"]).arg(&path).stderr(Stdio::null()).status()?;
        }
        if fs::symlink_metadata(&path).is_err() { Ok(()) } else { Err(error) }
    }
}
