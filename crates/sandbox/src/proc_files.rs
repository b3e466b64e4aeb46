//! Files of `/proc` that tell about processes and threads.

use std::fs;

pub(crate) fn tells_memory(status: &str) -> bool {
    number(status, "RssAnon:").is_some()
}

/// Returns true if a process or thread still has memory, which it gives up first when it ends.
pub(crate) fn has_memory(id: i32) -> bool {
    fs::read_to_string(format!("/proc/{id}/status")).is_ok_and(|status| tells_memory(&status))
}

/// Returns an empty list for a process that is gone.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Number of tasks of this process's user, over all its programs.
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

/// Value of a line of a status file.
pub(crate) fn number(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
