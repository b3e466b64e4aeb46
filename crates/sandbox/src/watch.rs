//! Measures the usage of all processes of one run together, from /proc: kernel limits apply to one process each.

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::statvfs,
    process::{Pid, getpid},
};

use crate::{
    bubblewrap::{SHM, SHM_BYTES, WORK},
    disk::{self, Sight},
    proc_files::{has_memory, number, tells_memory, threads},
    setup::{Confinement, Limit, Limits},
};

/// Maximum time until the sandbox's tmpfs mounts exist. The kernel limits their bytes; until then files are not
/// counted.
const TO_MOUNT: Duration = Duration::from_secs(10);
/// Fields of /proc/PID/status that count as memory of a process. Pages of programs and libraries are shared;
/// swapped-out memory is still in use.
const MEMORY: [&str; 4] = ["RssAnon:", "RssShmem:", "VmSwap:", "HugetlbPages:"];
/// Maximum number of consecutive measurements in which a process could not be inspected. An honest process is
/// opaque for a moment; a hostile one gains a quarter of a second of writing.
const OBSCURED: u32 = 10;
/// `CAP_SYS_PTRACE` (bit 19), the right to inspect processes of another user.
const SYS_PTRACE: u64 = 1 << 19;

/// Returns all processes below this one, parents before children. Orphans are included: the warden is their
/// subreaper.
pub(crate) fn descendants() -> Vec<i32> {
    let mut found = children(getpid().as_raw_nonzero().get());
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// Returns an empty list for a process that is gone.
fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for thread in threads(pid) {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// Watches the processes of one run.
pub(crate) struct Watch<'a> {
    limits: &'a Limits,
    confinement: &'a Confinement,
    /// The working directory, if it lies on a disk.
    work: Option<&'a Path>,
    started: Instant,
    /// True once the tmpfs mounts have been seen.
    mounted: bool,
    /// Number of consecutive incomplete measurements.
    obscured: u32,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        limits: &'a Limits,
        confinement: &'a Confinement,
        work: Option<&'a Path>,
        started: Instant,
    ) -> Self {
        Self { limits, confinement, work, started, mounted: false, obscured: 0 }
    }

    /// Returns the first limit that the run exceeds.
    pub(crate) fn exceeded(&mut self) -> Option<Limit> {
        let processes = descendants();
        let (mut memory, mut tasks) = (0, 0);
        for pid in &processes {
            let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
            memory += memory_of(*pid, &status);
            tasks += number(&status, "Threads:").unwrap_or(0);
        }
        // bubblewrap has two tasks of its own.
        let own = if matches!(self.confinement, Confinement::Namespaces { .. }) { 2 } else { 0 };
        if memory > self.limits.memory_bytes {
            return Some(Limit::Memory);
        }
        if tasks > self.limits.processes + own {
            return Some(Limit::Processes);
        }
        let over = match self.work {
            Some(work) => self.has_too_much_on_disk(work, &processes),
            None => self.has_too_many_in_memory(&processes),
        };
        over.then_some(Limit::Files)
    }

    fn has_too_much_on_disk(&mut self, work: &Path, processes: &[i32]) -> bool {
        match disk::look(work, processes, self.limits) {
            Sight::Within => self.obscured = 0,
            Sight::Obscured => self.obscured += 1,
            Sight::TooMuch => return true,
        }
        self.obscured >= OBSCURED
    }

    /// Counts the files in memory; the kernel limits their bytes. Any process inside shows them, unless it has
    /// ended.
    fn has_too_many_in_memory(&mut self, processes: &[i32]) -> bool {
        for (at, bytes) in [(WORK, self.limits.files_bytes), (SHM, SHM_BYTES)] {
            match processes.iter().rev().find_map(|pid| files_in_memory(*pid, at, bytes)) {
                Some(files) if files > self.limits.files => return true,
                Some(_) => self.mounted = true,
                // The first process is bubblewrap outside. If it is the only one left, the run is over.
                None if self.mounted || self.started.elapsed() > TO_MOUNT => {
                    return processes.iter().skip(1).any(|pid| has_memory(*pid));
                }
                None => {}
            }
        }
        false
    }
}

/// Memory of a process in bytes. Once its first thread has ended, only the other threads report it.
fn memory_of(pid: i32, status: &str) -> u64 {
    let sum = |status: &str| MEMORY.iter().filter_map(|name| number(status, name)).sum::<u64>() * 1024;
    if tells_memory(status) {
        return sum(status);
    }
    let mut others =
        threads(pid).into_iter().filter_map(|thread| fs::read_to_string(format!("/proc/{thread}/status")).ok());
    others.find(|status| tells_memory(status)).map_or(0, |status| sum(&status))
}

/// Number of files and directories in a tmpfs of the sandbox, seen through one of its processes; `None` if it
/// cannot be seen. A process that has not yet entered its namespaces sees the machine's file system, which has
/// another size.
fn files_in_memory(pid: i32, at: &str, bytes: u64) -> Option<u64> {
    let stat = statvfs(format!("/proc/{pid}/root{at}")).ok()?;
    let is_ours = stat.f_blocks * stat.f_frsize == bytes.next_multiple_of(stat.f_frsize.max(1));
    is_ours.then(|| stat.f_files.saturating_sub(stat.f_ffree))
}

/// Checks that this process can watch a run, under another user id or its own.
///
/// # Errors
/// The kernel does not list a process's children, or this process may not inspect processes of another user.
pub(crate) fn check(as_another_user: bool) -> io::Result<()> {
    fs::read_to_string("/proc/thread-self/children")?;
    let status = fs::read_to_string("/proc/thread-self/status")?;
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok()).unwrap_or(0);
    if as_another_user && rights & SYS_PTRACE == 0 {
        return Err(io::Error::other(
            "root without the capability CAP_SYS_PTRACE cannot watch what runs as another user; start the sandbox as a \
             user of its own",
        ));
    }
    Ok(())
}

pub(crate) fn pid(raw: i32) -> Option<Pid> {
    Pid::from_raw(raw)
}
