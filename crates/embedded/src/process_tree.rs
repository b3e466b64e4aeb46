//! Signals to a server and its children. A process group does not reach PostgreSQL's backends, which run in sessions
//! of their own.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const POLL: Duration = Duration::from_millis(5);

/// Signals `root`, then its children, so that a stopped postmaster forks no new child in between.
pub(crate) fn signal_tree(root: Pid, signal: Signal) {
    // The process may already be gone.
    let _ = kill_process(root, signal);
    for child in children(root) {
        let _ = kill_process(child, signal);
    }
}

/// Kills `root` and its children and waits up to `limit`. Returns false if one is still alive.
pub(crate) fn kill_tree(root: Pid, limit: Duration) -> bool {
    // Stop first, so that the list of children is final.
    signal_tree(root, Signal::STOP);
    let mut all = children(root);
    all.insert(0, root);
    for pid in &all {
        let _ = kill_process(*pid, Signal::KILL);
    }
    let deadline = Instant::now() + limit;
    while all.iter().any(|pid| is_alive(*pid)) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Returns true if `pid` runs. A zombie is not alive.
pub(crate) fn is_alive(pid: Pid) -> bool {
    match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        Ok(stat) => stat_fields(&stat).is_some_and(|(state, _)| state != 'Z' && state != 'X'),
        // Without /proc, probe with signal 0.
        Err(_) => !has_proc() && rustix::process::test_kill_process(pid).is_ok(),
    }
}

fn children(of: Pid) -> Vec<Pid> {
    let parent = of.as_raw_nonzero().get();
    if !has_proc() {
        return children_from_ps(parent);
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, ppid) = stat_fields(&stat)?;
            if ppid == parent { Pid::from_raw(pid) } else { None }
        })
        .collect()
}

fn has_proc() -> bool {
    std::path::Path::new("/proc/self/stat").exists()
}

/// State and parent of a `/proc/<pid>/stat` line. The process name before them is in parentheses and may contain any
/// character.
fn stat_fields(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn children_from_ps(parent: i32) -> Vec<Pid> {
    let Ok(output) = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output() else { return Vec::new() };
    parse_ps(&String::from_utf8_lossy(&output.stdout), parent)
}

fn parse_ps(table: &str, parent: i32) -> Vec<Pid> {
    table
        .lines()
        .filter_map(|line| {
            let mut columns = line.split_whitespace();
            let pid: i32 = columns.next()?.parse().ok()?;
            let ppid: i32 = columns.next()?.parse().ok()?;
            if ppid == parent { Pid::from_raw(pid) } else { None }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_with_parentheses_shifts_no_field() {
        assert_eq!(stat_fields("12 (a) S (b) Z 34 12 12 0"), Some(('Z', 34)));
        assert_eq!(stat_fields("no parentheses"), None);
    }

    #[test]
    fn ps_columns_are_read_whatever_their_padding() {
        assert_eq!(
            parse_ps("    1     0\n  20    10\n21 10\nheader x\n", 10),
            [Pid::from_raw(20), Pid::from_raw(21)].map(Option::unwrap)
        );
    }
}
