//! Resource limits. They hold for one process (tasks: for the user), so the warden watches what all of them use together.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::setup::Limits;

/// # Errors
/// The kernel refuses one.
pub(crate) fn apply(limits: &Limits, tasks: u64) -> io::Result<()> {
    let wanted = [
        (Resource::Core, 0),
        (Resource::Msgqueue, 0),
        (Resource::Memlock, 65_536),
        (Resource::Stack, 8 << 20),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Fsize, limits.files_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, tasks),
        // Last: from here on this process has little to spare itself.
        (Resource::As, limits.memory_bytes),
    ];
    for (resource, value) in wanted {
        // What was stricter already stays so.
        let value = getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}
