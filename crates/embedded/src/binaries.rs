//! Finds the installed servers. A directory counts as a PostgreSQL installation only if it holds `initdb`, `pg_ctl`
//! and `postgres`; links and wrappers in the search path are resolved first.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Oldest major version that the schema and the queries support.
pub(crate) const OLDEST_POSTGRES: u32 = 15;

/// Package directories outside the search path: Debian, Red Hat, Homebrew on ARM and Intel.
const VERSIONED: [(&str, &str); 4] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PostgresInstall {
    pub(crate) major: u32,
    pub(crate) bin: PathBuf,
}

/// Every usable PostgreSQL, newest first.
pub(crate) fn postgres_installs() -> Vec<PostgresInstall> {
    let mut candidates = search_path();
    for (parent, prefix) in VERSIONED {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        let matching = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        candidates.extend(matching.map(|entry| entry.path().join("bin")));
    }
    installs_among(candidates)
}

fn installs_among(candidates: Vec<PathBuf>) -> Vec<PostgresInstall> {
    let mut found: Vec<PostgresInstall> = candidates.iter().filter_map(|dir| install_at(dir)).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.dedup();
    found
}

fn install_at(dir: &Path) -> Option<PostgresInstall> {
    let bin = dir.join("postgres").canonicalize().ok()?.parent()?.to_owned();
    if !["postgres", "initdb", "pg_ctl"].iter().all(|program| bin.join(program).is_file()) {
        return None;
    }
    let output = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
    let major = major_version(&String::from_utf8_lossy(&output.stdout))?;
    (major >= OLDEST_POSTGRES).then_some(PostgresInstall { major, bin })
}

/// Parses `postgres (PostgreSQL) 15.14 (Debian …)`.
fn major_version(text: &str) -> Option<u32> {
    let version = text.split(") ").nth(1)?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The `redis-server` in the search path or of Homebrew.
pub(crate) fn redis_server() -> Option<PathBuf> {
    let mut candidates = search_path();
    candidates.push(PathBuf::from("/opt/homebrew/bin"));
    candidates.into_iter().map(|dir| dir.join("redis-server")).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the search path is the system's list of programs, not a setting of ours"
)]
fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_beta_and_packaged_versions_parse() {
        assert_eq!(major_version("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), Some(15));
        assert_eq!(major_version("postgres (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(major_version("something else"), None);
    }

    #[test]
    fn postgres_without_initdb_is_no_install() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 15.1'\n").unwrap();
        assert_eq!(installs_among(vec![dir.path().to_owned()]), vec![]);
    }
}
