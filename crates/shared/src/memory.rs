//! Memory of this process.

/// Page size in bytes on all supported platforms; the kernel reports pages.
const PAGE: u64 = 4_096;

/// Resident size of the process in bytes, if the kernel reports it.
#[must_use]
pub fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * PAGE)
}
