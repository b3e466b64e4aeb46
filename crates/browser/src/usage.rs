//! Measures the processes of one browser together, from /proc: kernel limits apply to one process each.

use std::{fs, path::Path};

/// Fields of /proc/PID/status that count as memory. Pages of programs and libraries are shared.
const MEMORY: [&str; 3] = ["RssAnon:", "RssShmem:", "VmSwap:"];
/// Files of the directory that are looked at; a browser begins with about 20.
const MAX_FILES: usize = 10_000;

/// Memory of all processes in the session that a child of `guard` leads, in bytes. Zero once there is none.
pub(crate) fn memory(guard: u32) -> u64 {
    let processes: Vec<Process> = processes();
    let Some(leader) = processes.iter().find(|process| process.parent == guard && process.session == process.id) else {
        return 0;
    };
    let in_session = processes.iter().filter(|process| process.session == leader.id);
    in_session.map(|process| memory_of(process.id)).sum()
}

struct Process {
    id: u32,
    parent: u32,
    session: u32,
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| process(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)).collect()
}

/// Reads a line of /proc/PID/stat. The name before the state is in parentheses and may contain any character.
fn process(id: u32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { id, parent, session })
}

fn memory_of(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let kib = status.lines().filter_map(|line| {
        let rest = MEMORY.iter().find_map(|name| line.strip_prefix(name))?;
        rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kib.sum::<u64>() * 1024
}

/// Bytes of the files below `dir`; [`u64::MAX`] if they are too many to look at.
pub(crate) fn disk(dir: &Path) -> u64 {
    let (mut bytes, mut files, mut open) = (0_u64, 0, vec![dir.to_owned()]);
    while let Some(dir) = open.pop() {
        // A directory may be gone by now.
        let Ok(entries) = fs::read_dir(dir) else { continue };
        for entry in entries.flatten() {
            files += 1;
            if files > MAX_FILES {
                return u64::MAX;
            }
            // Of the entry itself: a link is not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                open.push(entry.path());
            } else {
                bytes = bytes.saturating_add(metadata.len());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_with_parentheses_shifts_no_field() {
        let process = process(7, "7 (a) S 1 (b) R 34 12 56 0 -1").unwrap();
        assert_eq!((process.parent, process.session), (34, 56));
        assert!(super::process(7, "7 (a").is_none());
    }

    #[test]
    fn own_process_has_memory() {
        assert!(memory_of(std::process::id()) > 1 << 16);
        assert_eq!(memory_of(0), 0);
    }

    #[test]
    fn files_below_a_directory_are_summed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), [0; 100]).unwrap();
        fs::write(dir.path().join("c"), [0; 20]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("a/root")).unwrap();
        assert_eq!(disk(dir.path()), 121);
    }
}
