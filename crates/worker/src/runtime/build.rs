//! Identity of the build that this process runs. A fleet compares builds to decide if executions that killed
//! workers may be retried.
//!
//! The version alone does not distinguish two builds of an application, so the identity includes a fingerprint of
//! the executable: the GNU build id that the linker derived from its content, or else the file's length and
//! modification time.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    sync::OnceLock,
    time::UNIX_EPOCH,
};

/// Bytes of the build id that are used.
const KEPT: usize = 8;
/// Size of a 64-bit ELF header, and of one entry of its program header table.
const HEADER: usize = 64;
const ENTRY: usize = 56;
/// Maximum size of a note section that is read.
const NOTE_MAX: u64 = 65_536;
/// Program header type, and note type.
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// `named`, or the version and fingerprint of the executable if `named` is empty.
pub(crate) fn of_this_process(named: &str) -> String {
    static FINGERPRINT: OnceLock<String> = OnceLock::new();
    if !named.is_empty() {
        return named.to_owned();
    }
    let fingerprint = FINGERPRINT.get_or_init(|| {
        // Not by its original path: the file there may have been replaced.
        let running = Path::new("/proc/self/exe");
        let path = if running.exists() { Some(running.to_owned()) } else { std::env::current_exe().ok() };
        path.and_then(|path| linked_id(&path).or_else(|| stat_id(&path))).unwrap_or_else(|| "unknown".into())
    });
    format!("{}-{fingerprint}", env!("CARGO_PKG_VERSION"))
}

/// The build id in the notes of a 64-bit little-endian ELF file.
fn linked_id(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let header = read_at(&mut file, 0, HEADER)?;
    if header.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, entries) = (u64_at(&header, 32)?, u64::from(u16_at(&header, 56)?));
    for index in 0..entries {
        let entry = read_at(&mut file, table + index * ENTRY as u64, ENTRY)?;
        let size = u64_at(&entry, 32)?;
        if u32_at(&entry, 0)? == PT_NOTE && size <= NOTE_MAX {
            let notes = read_at(&mut file, u64_at(&entry, 8)?, usize::try_from(size).ok()?)?;
            if let Some(id) = find_id(&notes) {
                return Some(hex(id.get(..KEPT).unwrap_or(id)));
            }
        }
    }
    None
}

/// The build id among ELF notes: each has three 32-bit words (name length, content length, type), a name and a
/// content, padded to four bytes.
fn find_id(mut notes: &[u8]) -> Option<&[u8]> {
    while notes.len() > 12 {
        let (name, content) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let content_at = 12 + name.next_multiple_of(4);
        let value = notes.get(content_at..content_at + content)?;
        if u32_at(notes, 8)? == NT_GNU_BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            return Some(value);
        }
        notes = notes.get(content_at + content.next_multiple_of(4)..)?;
    }
    None
}

fn stat_id(path: &Path) -> Option<String> {
    let stat = path.metadata().ok()?;
    let changed = stat.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{:x}-{:x}", stat.len(), changed.as_secs()))
}

fn read_at(file: &mut File, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(at)).ok()?;
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_build_name_overrides_the_fingerprint() {
        assert_eq!(of_this_process("image-7"), "image-7");
        let own = of_this_process("");
        assert!(own.starts_with(concat!(env!("CARGO_PKG_VERSION"), "-")) && own.len() <= 64, "{own}");
        assert_eq!(of_this_process(""), own);
    }

    #[test]
    fn the_identifier_is_found_among_other_notes() {
        let note = |kind: u32, name: &[u8], content: &[u8]| {
            let mut bytes = Vec::new();
            for number in [name.len() as u32, content.len() as u32, kind] {
                bytes.extend(number.to_le_bytes());
            }
            for part in [name, content] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let notes =
            [note(1, b"GNU\0", b"abi"), note(3, b"Other\0", b"no"), note(3, b"GNU\0", b"\x01\xab\xff")].concat();
        assert_eq!(find_id(&notes), Some(b"\x01\xab\xff".as_slice()));
        assert_eq!(find_id(&notes[..notes.len() - 2]), None, "cut short");
        assert_eq!(find_id(&[]), None);
    }

    #[test]
    fn two_files_of_other_content_have_other_fingerprints() {
        let dir = std::env::temp_dir().join(format!("longhaul-build-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (one, two) = (dir.join("one"), dir.join("two"));
        std::fs::write(&one, b"#!/bin/sh").unwrap();
        std::fs::write(&two, b"#!/bin/bash").unwrap();
        assert_eq!((linked_id(&one), linked_id(&two)), (None, None), "no ELF files");
        assert_ne!(stat_id(&one), stat_id(&two));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
