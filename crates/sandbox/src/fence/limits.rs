//! Resource limits. The kernel applies them per process (the number of tasks per user), so the warden also watches
//! the sum over all processes.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::setup::Limits;

/// `address_space` is that of this process and of those that it starts.
///
/// # Errors
/// The kernel refuses a limit.
pub(crate) fn apply(limits: &Limits, tasks: u64, address_space: u64) -> io::Result<()> {
    let wanted = [
        (Resource::Core, 0),
        (Resource::Msgqueue, 0),
        (Resource::Memlock, 65_536),
        (Resource::Stack, 8 << 20),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Fsize, limits.files_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, tasks),
        // Last: from here on this process has little memory to spare itself.
        (Resource::As, address_space),
    ];
    for (resource, value) in wanted {
        // Keep a stricter limit that is already in place.
        let value = getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}
