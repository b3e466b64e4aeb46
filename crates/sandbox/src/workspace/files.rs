//! The files of a workspace in the working directory. The confined process runs this code: it can reach nothing that
//! the command could not reach.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, symlink},
    path::{Component, Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::wire::{Entry, MAX_BYTES, MAX_ENTRIES, MAX_FILE_BYTES, MAX_PATH, Node};

/// Writes the entries below the empty directory `root`; the bytes of files come from `bytes`.
///
/// # Errors
/// A path leaves `root` or exists twice, the bytes end early, or the disk refuses.
pub(super) fn unpack(root: &Path, entries: &[Entry], bytes: &mut impl Read) -> io::Result<()> {
    for entry in entries {
        let at = below(root, &entry.path)?;
        match &entry.node {
            Node::File { bytes: length, executable, .. } => {
                make_parents(&at)?;
                // `chmod` is refused in landlock, so the mode is given at once.
                let mode = if *executable { 0o700 } else { 0o600 };
                let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&at)?;
                if io::copy(&mut bytes.by_ref().take(*length), &mut file)? != *length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Node::Directory => make_directory(&at)?,
            Node::Link { .. } => {}
        }
    }
    // Last: no path above goes through a link.
    for entry in entries {
        if let Node::Link { target } = &entry.node {
            let at = below(root, &entry.path)?;
            make_parents(&at)?;
            symlink(target, at)?;
        }
    }
    Ok(())
}

fn below(root: &Path, path: &str) -> io::Result<PathBuf> {
    let relative = Path::new(path);
    let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || path.len() > MAX_PATH || !is_plain {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{path}` is no path below the workspace")));
    }
    Ok(root.join(relative))
}

fn make_parents(at: &Path) -> io::Result<()> {
    at.parent().map_or(Ok(()), make_directory)
}

fn make_directory(at: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(at)
}

/// Lists what lies below `root`, without following links. Sockets, pipes and devices are left out.
///
/// # Errors
/// A text for the caller: a limit is exceeded, or something cannot be read or named.
pub(super) fn survey(root: &Path, known: &HashSet<&str>) -> Result<Vec<Entry>, String> {
    let (mut entries, mut bytes) = (Vec::new(), 0_u64);
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let mut is_empty = true;
        let listed = fs::read_dir(&directory).map_err(|error| unreadable(root, &directory, &error))?;
        for found in listed {
            is_empty = false;
            let at = found.map_err(|error| unreadable(root, &directory, &error))?.path();
            let metadata = fs::symlink_metadata(&at).map_err(|error| unreadable(root, &at, &error))?;
            if metadata.is_dir() {
                open.push(at);
                continue;
            }
            let node = if metadata.is_symlink() {
                let target = fs::read_link(&at).map_err(|error| unreadable(root, &at, &error))?;
                Node::Link { target: text(&target)?.to_owned() }
            } else if metadata.is_file() {
                file(root, &at, known)?
            } else {
                continue;
            };
            if let Node::File { bytes: length, .. } = &node {
                bytes += length;
            }
            entries.push(Entry { path: name(root, &at)?, node });
            within(entries.len() + open.len(), bytes)?;
        }
        if is_empty && directory != root {
            entries.push(Entry { path: name(root, &directory)?, node: Node::Directory });
        }
        within(entries.len() + open.len(), bytes)?;
    }
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

fn within(entries: usize, bytes: u64) -> Result<(), String> {
    if entries > MAX_ENTRIES {
        return Err(format!("the workspace may have at most {MAX_ENTRIES} files"));
    }
    if bytes > MAX_BYTES {
        return Err(format!("the workspace may have at most {MAX_BYTES} bytes"));
    }
    Ok(())
}

fn file(root: &Path, at: &Path, known: &HashSet<&str>) -> Result<Node, String> {
    let (mut file, length) = open(at).map_err(|error| unreadable(root, at, &error))?;
    if length > MAX_FILE_BYTES {
        return Err(format!("{} has {length} bytes; a file may have at most {MAX_FILE_BYTES}", shown(root, at)));
    }
    let mut hash = Sha256::new();
    let mut block = vec![0; 64 << 10];
    let mut read = 0_u64;
    loop {
        let some = file.read(&mut block).map_err(|error| unreadable(root, at, &error))?;
        if some == 0 {
            break;
        }
        hash.update(block.get(..some).unwrap_or_default());
        read += some as u64;
        if read > MAX_FILE_BYTES {
            return Err(format!("{} grows while it is saved", shown(root, at)));
        }
    }
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let executable = file.metadata().is_ok_and(|metadata| metadata.mode() & 0o100 != 0);
    let sent = !known.contains(hash.as_str());
    Ok(Node::File { bytes: read, hash, executable, sent })
}

/// A process that the command left may still change things: never follow a link, never wait for a pipe.
fn open(at: &Path) -> io::Result<(File, u64)> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(at)?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata.len())) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Sends the bytes of the entries that have `sent`, exactly as many as were announced.
///
/// # Errors
/// The caller is gone.
pub(super) fn send(root: &Path, entries: &[Entry], to: &mut impl Write) -> io::Result<()> {
    for entry in entries {
        let Node::File { bytes, sent: true, .. } = &entry.node else { continue };
        let file = open(&root.join(&entry.path)).ok().map(|(file, _)| file);
        let copied = match file {
            Some(file) => io::copy(&mut file.take(*bytes), to)?,
            None => 0,
        };
        // Changed meanwhile by a process that the command left: filled up, because the length is announced.
        io::copy(&mut io::repeat(0).take(bytes - copied), to)?;
    }
    Ok(())
}

fn name(root: &Path, at: &Path) -> Result<String, String> {
    let name = text(at.strip_prefix(root).unwrap_or(at))?;
    if name.len() > MAX_PATH {
        return Err(format!("the path {} is longer than {MAX_PATH} bytes", shown(root, at)));
    }
    Ok(name.to_owned())
}

fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("the name {} is not UTF-8", path.display()))
}

fn unreadable(root: &Path, at: &Path, error: &io::Error) -> String {
    format!("{} cannot be read: {error}", shown(root, at))
}

fn shown(root: &Path, at: &Path) -> String {
    at.strip_prefix(root).unwrap_or(at).display().to_string().chars().take(256).collect()
}
