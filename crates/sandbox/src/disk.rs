//! What a run holds on the disk, where its working directory lies on one: files that have a name, and files that it removed and
//! still has.
//!
//! What must hold: what cannot be looked into counts as too much, because it may hold anything. Code that renames its directories
//! faster than they are read is not seen; the size of the file system is what bounds it (docs/sandbox.md).

use std::{
    collections::HashSet,
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use crate::{setup::Limits, watch};

/// What is read of the mappings of all processes together: an interpreter has some 10 KiB of them. More would hold up the watch.
const MAPS_BYTES: u64 = 4 << 20;
/// How /proc marks a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// What a look at the disk has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    Within,
    /// A process could not be looked into. One that is about to become another program cannot, for a moment.
    Obscured,
    /// More than the run may have.
    TooMuch,
}

pub(crate) fn look(work: &Path, processes: &[i32], limits: &Limits) -> Sight {
    let mut held = Held { limits, bytes: 0, files: 0, removed: HashSet::new(), maps: MAPS_BYTES };
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

/// It is too much, or may be.
struct TooMuch;

/// Whether a process could be looked into.
#[derive(PartialEq, Eq)]
enum Looked {
    /// Or it has ended.
    Into,
    Refused,
}

struct Held<'a> {
    limits: &'a Limits,
    bytes: u64,
    files: u64,
    /// Files without a name, by device and number: several processes may have the same.
    removed: HashSet<(u64, u64)>,
    /// How much may still be read of mappings.
    maps: u64,
}

impl Held<'_> {
    fn add(&mut self, metadata: &Metadata) -> Result<(), TooMuch> {
        self.files += 1;
        // As much as it takes on the disk: a file with holes is not large.
        self.bytes += metadata.blocks() * 512;
        let is_over = self.files > self.limits.files || self.bytes > self.limits.files_bytes;
        if is_over { Err(TooMuch) } else { Ok(()) }
    }

    /// What has a name.
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

    /// What a process has removed and still holds. Its threads share what they have open; the system calls that would change that
    /// are refused.
    fn removed_by(&mut self, pid: i32, work: &Path) -> Result<Looked, TooMuch> {
        for thread in watch::threads(pid) {
            // One that ends has no memory any more, and cannot be looked into. It writes nothing, and what it holds goes with it.
            if !watch::has_memory(thread) {
                continue;
            }
            match nameless(thread, work, &mut self.maps) {
                Ok(found) => {
                    found.iter().try_for_each(|metadata| self.add_removed(metadata))?;
                    return Ok(Looked::Into);
                }
                Err(_) if watch::has_memory(thread) => return Ok(Looked::Refused),
                Err(_) => {}
            }
        }
        Ok(Looked::Into)
    }

    fn add_removed(&mut self, metadata: &Metadata) -> Result<(), TooMuch> {
        if self.removed.insert((metadata.dev(), metadata.ino())) { self.add(metadata) } else { Ok(()) }
    }
}

/// `None` for what was removed meanwhile.
fn unless_gone<T>(found: io::Result<T>) -> Result<Option<T>, TooMuch> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(_) => Err(TooMuch),
    }
}

/// Whether there is nothing there any more, or no directory.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The files without a name that a thread has open, works in, runs, or has mapped. What is open is not asked where it lies: an
/// overlay gives files another device than directories.
///
/// # Errors
/// Something of it cannot be looked at.
fn nameless(thread: i32, work: &Path, maps: &mut u64) -> io::Result<Vec<Metadata>> {
    let of_thread = PathBuf::from(format!("/proc/{thread}"));
    let mut found = Vec::new();
    let mut look = |at: &Path| match fs::metadata(at) {
        Ok(metadata) => {
            found.extend(Some(metadata).filter(|metadata| metadata.nlink() == 0));
            Ok(())
        }
        // Closed meanwhile.
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(error),
    };
    for entry in fs::read_dir(of_thread.join("fd"))? {
        look(&entry?.path())?;
    }
    // The program may be this one, of which an upgrade has removed the file.
    for name in ["cwd", "exe"] {
        if fs::read_link(of_thread.join(name))?.starts_with(work) {
            look(&of_thread.join(name))?;
        }
    }
    let open: HashSet<u64> = found.iter().map(Metadata::ino).collect();
    for (addresses, _) in removed_mappings(thread, work, maps)?.into_iter().filter(|(_, file)| !open.contains(file)) {
        // Only root may follow this one.
        match fs::metadata(of_thread.join("map_files").join(addresses)) {
            Ok(metadata) => found.push(metadata),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Addresses and file number of each mapping of a file that lay below `work`.
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
        // The directory of mappings has the numbers without zeros in front.
        let addresses = format!("{}-{}", from.trim_start_matches('0'), to.trim_start_matches('0'));
        Some((addresses, fields.nth(3)?.parse().ok()?))
    });
    Ok(removed.collect())
}
