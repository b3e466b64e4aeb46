//! What the processes of one run use together, read from /proc: limits of the kernel hold for one process each.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::statvfs,
    process::{Pid, getpid},
};

use crate::{
    bubblewrap::{SHM, SHM_BYTES, WORK},
    setup::{Confinement, Limit, Limits},
};

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
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// The first limit that the run is over, if it is over one.
pub(crate) fn exceeded(limits: &Limits, confinement: &Confinement, work: Option<&Path>) -> Option<Limit> {
    let processes = descendants();
    let (mut memory, mut tasks) = (0, 0);
    for pid in &processes {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        // Pages of programs and libraries are shared with everybody; what is swapped out is still used.
        memory +=
            ["RssAnon:", "RssShmem:", "VmSwap:"].iter().filter_map(|name| number(&status, name)).sum::<u64>() * 1024;
        tasks += number(&status, "Threads:").unwrap_or(0);
    }
    // bubblewrap's own two, beside the code's.
    let own = if matches!(confinement, Confinement::Namespaces { .. }) { 2 } else { 0 };
    if memory > limits.memory_bytes {
        return Some(Limit::Memory);
    }
    if tasks > limits.processes + own {
        return Some(Limit::Processes);
    }
    let over = match (work, processes.last()) {
        (Some(work), _) => tree_is_over(work, limits),
        (None, Some(inner)) => {
            let places = [(WORK, limits.files_bytes), (SHM, SHM_BYTES)];
            places.iter().any(|(at, bytes)| files_in_memory(*inner, at, *bytes) > limits.files)
        }
        (None, None) => false,
    };
    over.then_some(Limit::Files)
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

/// Whether a directory holds more than the code may write. Bytes are limited by the kernel where it lies in memory.
fn tree_is_over(root: &Path, limits: &Limits) -> bool {
    let (mut bytes, mut files) = (0, 0);
    let mut open: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        // What cannot be read any more was removed meanwhile.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            files += 1;
            // As much as it takes on the disk: a file with holes is not large.
            bytes += std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
            if files > limits.files || bytes > limits.files_bytes {
                return true;
            }
            if metadata.is_dir() {
                open.push(entry.path());
            }
        }
    }
    false
}

/// Files and directories in a file system of the sandbox, seen through one of its processes; 0 when it cannot be seen. A process
/// that is not yet within its namespaces sees the machine's, which is of another size.
fn files_in_memory(pid: i32, at: &str, bytes: u64) -> u64 {
    let Ok(stat) = statvfs(format!("/proc/{pid}/root{at}")) else { return 0 };
    let is_ours = stat.f_blocks * stat.f_frsize == bytes.next_multiple_of(stat.f_frsize.max(1));
    if is_ours { stat.f_files.saturating_sub(stat.f_ffree) } else { 0 }
}

/// Whether this kernel tells a process's children, without which nothing is watched.
///
/// # Errors
/// It does not.
pub(crate) fn check() -> io::Result<()> {
    fs::read_to_string("/proc/thread-self/children").map(drop)
}

pub(crate) fn pid(raw: i32) -> Option<Pid> {
    Pid::from_raw(raw)
}
