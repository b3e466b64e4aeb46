//! What the processes of one run use together, read from /proc: limits of the kernel hold for one process each.

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
    setup::{Confinement, Limit, Limits},
};

/// How long the file systems of the sandbox may take to be there. Their bytes are the kernel's to limit; until then nobody counts files.
const TO_MOUNT: Duration = Duration::from_secs(10);
/// What counts as memory of a process. Pages of programs and libraries are shared with everybody; what is swapped out is still used.
const MEMORY: [&str; 4] = ["RssAnon:", "RssShmem:", "VmSwap:", "HugetlbPages:"];
/// How many times in a row a process may not be looked into. It is a moment for honest ones, and a quarter of a second of writing for others.
const OBSCURED: u32 = 10;
/// The right to look into what runs as another user: bit 19 of the capabilities.
const SYS_PTRACE: u64 = 1 << 19;

/// All processes below this one, parents before children. Orphans are among them: the warden is their reaper.
pub(crate) fn descendants() -> Vec<i32> {
    let mut found = children(getpid().as_raw_nonzero().get());
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// Empty for a process that is gone.
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
    /// The working directory, where it lies on a disk.
    work: Option<&'a Path>,
    started: Instant,
    /// Whether the file systems in memory were there already.
    mounted: bool,
    /// How many looks in a row did not show everything.
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

    /// The first limit that the run is over, if it is over one.
    pub(crate) fn exceeded(&mut self) -> Option<Limit> {
        let processes = descendants();
        let (mut memory, mut tasks) = (0, 0);
        for pid in &processes {
            let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
            memory += memory_of(*pid, &status);
            tasks += number(&status, "Threads:").unwrap_or(0);
        }
        // bubblewrap's own two, beside the code's.
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

    /// Files in memory; their bytes are limited by the kernel. Any process within can tell, but one that has ended cannot.
    fn has_too_many_in_memory(&mut self, processes: &[i32]) -> bool {
        for (at, bytes) in [(WORK, self.limits.files_bytes), (SHM, SHM_BYTES)] {
            match processes.iter().rev().find_map(|pid| files_in_memory(*pid, at, bytes)) {
                Some(files) if files > self.limits.files => return true,
                Some(_) => self.mounted = true,
                // The first is bubblewrap outside. When it is all that is left, the run is over.
                None if self.mounted || self.started.elapsed() > TO_MOUNT => {
                    return processes.iter().skip(1).any(|pid| has_memory(*pid));
                }
                None => {}
            }
        }
        false
    }
}

/// What a process takes, in bytes. Once its first thread has ended, only the others tell.
fn memory_of(pid: i32, status: &str) -> u64 {
    let sum = |status: &str| MEMORY.iter().filter_map(|name| number(status, name)).sum::<u64>() * 1024;
    if tells_memory(status) {
        return sum(status);
    }
    let mut others =
        threads(pid).into_iter().filter_map(|thread| fs::read_to_string(format!("/proc/{thread}/status")).ok());
    others.find(|status| tells_memory(status)).map_or(0, |status| sum(&status))
}

fn tells_memory(status: &str) -> bool {
    number(status, "RssAnon:").is_some()
}

/// Whether a process or thread still has any, which it gives up first when it ends.
pub(crate) fn has_memory(id: i32) -> bool {
    fs::read_to_string(format!("/proc/{id}/status")).is_ok_and(|status| tells_memory(&status))
}

/// Empty for a process that is gone.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// How many tasks the user of this process has, in this and all its other programs.
pub(crate) fn tasks_of_this_user() -> u64 {
    let uid = rustix::process::getuid().as_raw().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let statuses = processes
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit()));
    let statuses = statuses.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    let own = statuses.filter(|status| {
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        ids.and_then(|ids| ids.split_whitespace().next()) == Some(uid.as_str())
    });
    own.filter_map(|status| number(&status, "Threads:")).sum()
}

fn number(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Files and directories in a file system of the sandbox, seen through one of its processes; `None` when it cannot be seen. A process
/// that is not yet within its namespaces sees the machine's, which is of another size.
fn files_in_memory(pid: i32, at: &str, bytes: u64) -> Option<u64> {
    let stat = statvfs(format!("/proc/{pid}/root{at}")).ok()?;
    let is_ours = stat.f_blocks * stat.f_frsize == bytes.next_multiple_of(stat.f_frsize.max(1));
    is_ours.then(|| stat.f_files.saturating_sub(stat.f_ffree))
}

/// Whether what runs, as another user or as this one, can be watched from here.
///
/// # Errors
/// It cannot: this kernel does not tell a process's children, or this process may not look into those of another user.
pub(crate) fn check(as_another_user: bool) -> io::Result<()> {
    fs::read_to_string("/proc/thread-self/children")?;
    let status = fs::read_to_string("/proc/thread-self/status")?;
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok()).unwrap_or(0);
    if as_another_user && rights & SYS_PTRACE == 0 {
        return Err(io::Error::other(
            "root without the capability CAP_SYS_PTRACE cannot watch what runs as another user; start the sandbox as a user of its own",
        ));
    }
    Ok(())
}

pub(crate) fn pid(raw: i32) -> Option<Pid> {
    Pid::from_raw(raw)
}
