//! Measures the disk usage of a run whose working directory lies on a disk: its named files, and the removed files
//! that its processes still hold.
//!
//! Invariant: a process that cannot be inspected counts as over the limit, because it may hold any number of files.
//! Code that renames its directories faster than they are read escapes the measurement; only the size of the file
//! system bounds it (docs/guide/sandbox.md).

use std::{
    collections::HashSet,
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use crate::{proc_files, setup::Limits};

/// Maximum bytes of /proc/PID/maps read per measurement over all processes. An interpreter has some 10 KiB of
/// mappings; reading more would delay the watch.
const MAPS_BYTES: u64 = 4 << 20;
/// Suffix that /proc appends to the path of a removed file.
const REMOVED: &[u8] = b" (deleted)";

/// Result of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    Within,
    /// A process could not be inspected, for example while it executes another program.
    Obscured,
    /// The run exceeds a limit, or may exceed it.
    TooMuch,
}

pub(crate) fn look(work: &Path, processes: &[i32], limits: &Limits) -> Sight {
    let mut held = DiskUsage { limits, bytes: 0, files: 0, removed: HashSet::new(), maps: MAPS_BYTES };
    let mut obscured = false;
    let looked = held.tree(work).and_then(|()| {
        processes.iter().try_for_each(|pid| {
            obscured |= held.removed_by(*pid, work)? == Looked::Refused;
            Ok(())
        })
    });
    match looked {
        Err(TooMuch) => Sight::TooMuch,
        Ok(()) if obscured => Sight::Obscured,
        Ok(()) => Sight::Within,
    }
}

/// A limit is exceeded, or usage could not be determined.
struct TooMuch;

#[derive(PartialEq, Eq)]
enum Looked {
    /// Also when the process has ended.
    Into,
    Refused,
}

struct DiskUsage<'a> {
    limits: &'a Limits,
    bytes: u64,
    files: u64,
    /// Removed files by device and inode number: several processes may hold the same file.
    removed: HashSet<(u64, u64)>,
    /// Bytes of mappings that may still be read.
    maps: u64,
}

impl DiskUsage<'_> {
    fn add(&mut self, metadata: &Metadata) -> Result<(), TooMuch> {
        self.files += 1;
        // Allocated blocks, not the length: a sparse file is not large.
        self.bytes += metadata.blocks() * 512;
        let is_over = self.files > self.limits.files || self.bytes > self.limits.files_bytes;
        if is_over { Err(TooMuch) } else { Ok(()) }
    }

    /// Adds the files that have a name.
    fn tree(&mut self, work: &Path) -> Result<(), TooMuch> {
        let mut open: Vec<PathBuf> = vec![work.to_owned()];
        while let Some(directory) = open.pop() {
            let Some(entries) = unless_gone(fs::read_dir(directory))? else { continue };
            for entry in entries {
                let entry = entry.map_err(|_| TooMuch)?;
                let Some(metadata) = unless_gone(entry.metadata())? else { continue };
                self.add(&metadata)?;
                if metadata.is_dir() {
                    open.push(entry.path());
                }
            }
        }
        Ok(())
    }

    /// Adds the removed files that a process still holds. One thread shows them all: threads share their open
    /// files, because the seccomp filter refuses the calls that would unshare them.
    fn removed_by(&mut self, pid: i32, work: &Path) -> Result<Looked, TooMuch> {
        for thread in proc_files::threads(pid) {
            // A thread that ends has no memory any more and cannot be inspected. It writes nothing, and its files
            // go with it.
            if !proc_files::has_memory(thread) {
                continue;
            }
            match nameless(thread, work, &mut self.maps) {
                Ok(found) => {
                    found.iter().try_for_each(|metadata| self.add_removed(metadata))?;
                    return Ok(Looked::Into);
                }
                Err(_) if proc_files::has_memory(thread) => return Ok(Looked::Refused),
                Err(_) => {}
            }
        }
        Ok(Looked::Into)
    }

    fn add_removed(&mut self, metadata: &Metadata) -> Result<(), TooMuch> {
        if self.removed.insert((metadata.dev(), metadata.ino())) { self.add(metadata) } else { Ok(()) }
    }
}

/// Returns `None` for a file that was removed meanwhile.
fn unless_gone<T>(found: io::Result<T>) -> Result<Option<T>, TooMuch> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(_) => Err(TooMuch),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the removed files that a thread has open, works in, runs or has mapped. Open files are counted wherever
/// they lie, because overlayfs reports another device for files than for directories.
///
/// # Errors
/// A part of the thread's state cannot be inspected.
fn nameless(thread: i32, work: &Path, maps: &mut u64) -> io::Result<Vec<Metadata>> {
    let of_thread = PathBuf::from(format!("/proc/{thread}"));
    let mut found = Vec::new();
    let mut look = |at: &Path| match fs::metadata(at) {
        Ok(metadata) => {
            found.extend(Some(metadata).filter(|metadata| metadata.nlink() == 0));
            Ok(())
        }
        // The thread has closed it meanwhile.
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(error),
    };
    for entry in fs::read_dir(of_thread.join("fd"))? {
        look(&entry?.path())?;
    }
    // The program may be this one, whose file an upgrade has removed.
    for name in ["cwd", "exe"] {
        if fs::read_link(of_thread.join(name))?.starts_with(work) {
            look(&of_thread.join(name))?;
        }
    }
    let open: HashSet<u64> = found.iter().map(Metadata::ino).collect();
    for (addresses, _) in removed_mappings(thread, work, maps)?.into_iter().filter(|(_, file)| !open.contains(file)) {
        // Only root may follow a link in map_files.
        match fs::metadata(of_thread.join("map_files").join(addresses)) {
            Ok(metadata) => found.push(metadata),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns address range and inode number of each mapping of a removed file below `work`.
fn removed_mappings(thread: i32, work: &Path, left: &mut u64) -> io::Result<Vec<(String, u64)>> {
    let mut text = Vec::new();
    let read = File::open(format!("/proc/{thread}/maps"))?.take(*left).read_to_end(&mut text)?;
    *left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
    if *left == 0 {
        return Err(io::Error::other("there are too many mappings to read"));
    }
    let below = [work.as_os_str().as_bytes(), b"/"].concat();
    let removed = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let (start, path) = line.split_at(line.iter().position(|byte| *byte == b'/')?);
        if !path.starts_with(&below) || !path.ends_with(REMOVED) {
            return None;
        }
        let mut fields = std::str::from_utf8(start).ok()?.split_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        // The names in map_files have no leading zeros.
        let addresses = format!("{}-{}", from.trim_start_matches('0'), to.trim_start_matches('0'));
        Some((addresses, fields.nth(3)?.parse().ok()?))
    });
    Ok(removed.collect())
}
