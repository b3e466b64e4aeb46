//! CPU time and memory of processes, from `/proc`; `None` on other systems.

use std::fs;

/// Unit of `/proc/<pid>/stat`, which Linux fixes at 100 per second for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of `pid` in user and kernel mode, in seconds, including children it has waited for.
pub(super) fn seconds(pid: i32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(fields(&stat)?.ticks / TICKS_PER_SECOND)
}

/// CPU time of this process, in seconds.
pub(super) fn own_seconds() -> Option<f64> {
    seconds(i32::try_from(std::process::id()).ok()?)
}

/// CPU time of `root` and its children, running or waited for, in seconds.
pub(super) fn seconds_with_children(root: i32) -> Option<f64> {
    let mut total = seconds(root)?;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        // The parent counts a process that has ended meanwhile.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        total += fields(&stat).filter(|of| of.parent == root).map_or(0.0, |of| of.ticks / TICKS_PER_SECOND);
    }
    Some(total)
}

/// Resident memory of `pid`, in bytes.
pub(super) fn resident_bytes(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1_024)
}

struct Fields {
    parent: i32,
    ticks: f64,
}

/// The process name at the start is in parentheses and may contain any character.
fn fields(stat: &str) -> Option<Fields> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let used = fields.get(11..15)?.iter().map(|field| field.parse::<f64>());
    Some(Fields { parent: fields.get(1)?.parse().ok()?, ticks: used.sum::<Result<f64, _>>().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_is_read_for_any_name() {
        let read = fields("7 (a) b) S 3 7 7 0 -1 0 1 2 3 4 100 20 3 1 20 0 1").unwrap();
        assert_eq!((read.parent, read.ticks), (3, 124.0));
        assert!(fields("7 (a").is_none());
    }
}
