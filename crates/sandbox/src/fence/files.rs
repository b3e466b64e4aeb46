//! Landlock: restricts the files that may be read, run and written and, where the kernel supports it, refuses TCP
//! and signals to processes outside the sandbox.

use std::{
    io,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

/// Newest landlock version in use; the crate omits the rights that an older kernel does not know.
const NEWEST: ABI = ABI::V6;
/// First landlock version that confines signals.
const SIGNALS: u32 = 6;

const SYSTEM: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
];
const DEVICES: [&str; 4] = ["/dev/null", "/dev/full", "/dev/random", "/dev/urandom"];
/// Read only: a writer could map it shared and so get memory that belongs to no process.
const ZERO: &str = "/dev/zero";

/// Degree of confinement that landlock provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fenced {
    /// The kernel has no landlock, or it is switched off.
    No,
    /// Files are confined; signals may leave the sandbox.
    Files,
    FilesAndSignals,
}

/// Allows reading `readable` and the system's programs and libraries, and writing `writable`; refuses all other
/// files.
///
/// # Errors
/// An existing path cannot be opened, or the kernel refuses.
pub(crate) fn apply(readable: &[PathBuf], writable: &[&Path]) -> io::Result<Fenced> {
    let read = AccessFs::from_read(NEWEST);
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    for path in SYSTEM.iter().map(Path::new).chain(readable.iter().map(PathBuf::as_path)) {
        rules = allow(rules, path, read)?;
    }
    for device in DEVICES {
        rules = allow(rules, Path::new(device), AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    rules = allow(rules, Path::new(ZERO), AccessFs::ReadFile.into())?;
    for path in writable {
        rules = allow(rules, path, AccessFs::from_all(NEWEST) & !BitFlags::from(AccessFs::IoctlDev))?;
    }
    let status = rules.restrict_self().map_err(io::Error::other)?;
    Ok(fenced(&status))
}

fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    // Systems lack some of these paths.
    let Ok(metadata) = path.metadata() else { return Ok(rules) };
    let access = if metadata.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    let opened = PathFd::new(path).map_err(io::Error::other)?;
    rules.add_rule(PathBeneath::new(opened, access)).map_err(io::Error::other)
}

fn fenced(status: &RestrictionStatus) -> Fenced {
    if status.ruleset == RulesetStatus::NotEnforced {
        return Fenced::No;
    }
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi as u32 >= SIGNALS => Fenced::FilesAndSignals,
        LandlockStatus::Available { .. } => Fenced::Files,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => Fenced::No,
    }
}
