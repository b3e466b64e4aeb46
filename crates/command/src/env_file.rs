//! `.longhaul/env`: address and keys of a development server, in a form that a shell can source and the client
//! commands read.
//!
//! The file holds keys, so only its owner may read it. It is replaced by a rename, so a reader never sees a partial
//! file.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// File name within the data directory.
pub const NAME: &str = "env";

/// Reads the variables of the file; empty if the file cannot be read.
#[must_use]
pub fn read(path: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<(String, String)> {
    let (name, value) = line.trim().strip_prefix("export ")?.split_once('=')?;
    let value = value.strip_prefix('\'')?.strip_suffix('\'')?;
    Some((name.to_owned(), value.replace(r"'\''", "'")))
}

/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, values: &[(&str, &str)]) -> io::Result<()> {
    let mut text =
        String::from("# Written by `longhaul dev`. In a shell: `. ./.longhaul/env`. It holds keys: keep it private.\n");
    for (name, value) in values {
        text += &format!("export {name}='{}'\n", value.replace('\'', r"'\''"));
    }
    let unfinished = path.with_extension("new");
    // A file left by a crash may have other permissions; `mode` applies to new files only.
    let _ = fs::remove_file(&unfinished);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn env_file_round_trips_with_owner_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        write(&path, &[("A", "old")]).unwrap();
        write(&path, &[("A", "postgres://u:p@h/d?x='y'"), ("B", "")]).unwrap();
        let values = read(&path);
        assert_eq!((values["A"].as_str(), values["B"].as_str()), ("postgres://u:p@h/d?x='y'", ""));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(read(&dir.path().join("none")).is_empty());
    }
}
