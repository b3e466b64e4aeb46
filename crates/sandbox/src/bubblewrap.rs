//! Builds the `bwrap` command. The code sees only the parts of the machine that this file names.

use std::{
    fs::{self, File},
    io,
    os::fd::AsRawFd as _,
    path::Path,
    process::Command,
};

use rustix::io::{FdFlags, fcntl_setfd};

/// Working directory inside the namespaces: a tmpfs that disappears with them.
pub(crate) const WORK: &str = "/tmp";
/// Tmpfs for the semaphores and shared memory of Python's multiprocessing.
pub(crate) const SHM: &str = "/dev/shm";
pub(crate) const SHM_BYTES: u64 = 8 << 20;
/// The only paths of /etc that are mounted: the dynamic linker, Debian's alternatives and the time zone need them.
const OF_ETC: [&str; 3] = ["/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"];
/// Path of this program inside the namespaces when it cannot be run through /proc.
const PROGRAM: &str = "/longhaul";

/// A `bwrap` command that runs this program inside the namespaces. The caller appends the program's arguments and
/// keeps `program` open until the command runs.
pub(crate) struct Inner {
    pub(crate) command: Command,
    pub(crate) program: Option<File>,
}

/// # Errors
/// This program cannot be opened.
pub(crate) fn command(bwrap: &Path, proc: bool, readable: &[std::path::PathBuf], bytes: u64) -> io::Result<Inner> {
    let mut command = Command::new(bwrap);
    command
        .args([
            "--unshare-user",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup",
        ])
        .args(["--die-with-parent", "--new-session", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox"])
        .args(["--ro-bind", "/usr", "/usr"]);
    for path in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
        match fs::read_link(path) {
            Ok(target) => _ = command.arg("--symlink").arg(target).arg(path),
            Err(_) => _ = command.args(["--ro-bind-try", path, path]),
        }
    }
    // Mount the tmpfs first: the readable paths may lie below it.
    command.args(["--size", &bytes.to_string(), "--perms", "0700", "--tmpfs", WORK]);
    for path in OF_ETC.iter().map(Path::new).chain(readable.iter().map(std::path::PathBuf::as_path)) {
        command.arg("--ro-bind-try").arg(path).arg(path);
    }
    command
        .args([
            "--dev",
            "/dev",
            "--size",
            &SHM_BYTES.to_string(),
            "--perms",
            "0700",
            "--tmpfs",
            SHM,
            "--remount-ro",
            "/dev",
        ])
        .args(["--chdir", WORK, "--cap-drop", "ALL"]);
    // The code's user may lack access to this program's path; an open file can be executed from anywhere through
    // /proc.
    let program = if proc {
        let program = File::open("/proc/self/exe")?;
        fcntl_setfd(&program, FdFlags::empty())?;
        command.args(["--proc", "/proc", "--disable-userns", "--remount-ro", "/", "--"]);
        command.arg(format!("/proc/self/fd/{}", program.as_raw_fd()));
        Some(program)
    } else {
        command.arg("--ro-bind").arg(fs::read_link("/proc/self/exe")?).arg(PROGRAM);
        command.args(["--remount-ro", "/", "--", PROGRAM]);
        None
    };
    Ok(Inner { command, program })
}
