//! `longhaul sandbox-init`: confines itself, then becomes the interpreter, or runs the command of a workspace.
//!
//! Invariants: there is one thread; nothing of the request is read before the confinement holds; if any step fails,
//! nothing of it is run.

use std::{io, os::unix::process::CommandExt as _, path::Path, process::Command, time::Duration};

use rustix::{
    fs::Mode,
    process::{Signal, getpid, set_parent_process_death_signal, umask},
};

use crate::{
    bubblewrap::SHM,
    fence::{
        files::{self, Fenced},
        limits,
        system_calls::{self, KernelObjects},
    },
    probe,
    setup::{Confinement, Inside, Program},
    workspace::runner::Runner,
};

const PYTHON: &str = include_str!("harness/python.py");
const BASH: &str = include_str!("harness/bash.sh");
/// Bytes of address space that this program's allocator may reserve.
const ALLOCATOR: u64 = 8 << 30;
/// Environment of the code. It takes nothing from the service's environment.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("USER", "sandbox"),
    ("LOGNAME", "sandbox"),
];

/// Runs the program that `inside` describes. An interpreter takes the place of this process, so this function returns
/// only after a program of its own, or with an error.
///
/// # Errors
/// This process cannot be confined, or the program not be run.
pub fn run(inside: &str) -> io::Result<()> {
    let inside: Inside = serde_json::from_str(inside)?;
    confine(&inside)?;
    if let Program::Workspace { bash, time_ms } = &inside.program {
        let (work, confinement, spare) = (&inside.work, &inside.confinement, inside.spare);
        let time = Duration::from_millis(*time_ms);
        let memory_bytes = inside.limits.memory_bytes;
        return Runner { bash, work, environment: &ENVIRONMENT, confinement, spare, time, memory_bytes }.run();
    }
    Err(become_program(&inside))
}

fn confine(inside: &Inside) -> io::Result<()> {
    // Covers a warden that is killed itself; otherwise the warden kills by process group.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    umask(Mode::RWXG | Mode::RWXO);
    // Makes this process the OOM killer's first choice. Without a /proc of its own the write fails, which is
    // harmless.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    limits::apply(&inside.limits, inside.tasks, address_space(inside))?;
    let work = inside.work.as_path();
    let reach = match &inside.confinement {
        Confinement::Namespaces { .. } => {
            let readable: Vec<_> = inside.readable.iter().cloned().chain(["/proc".into()]).collect();
            // Within namespaces landlock is a second boundary, so a kernel without it is accepted.
            files::apply(&readable, &[work, Path::new(SHM)])?;
            KernelObjects::Own
        }
        Confinement::Landlock => {
            let fenced = files::apply(&inside.readable, &[work])?;
            if fenced == Fenced::No {
                return Err(io::Error::other("this kernel has no landlock, or it is switched off"));
            }
            let own = getpid().as_raw_nonzero().get();
            KernelObjects::Shared { signals_are_fenced: fenced == Fenced::FilesAndSignals, own }
        }
        Confinement::Nothing => return Ok(()),
    };
    system_calls::apply(reach)
}

/// Limit of the address space. This program's allocator reserves more than code may have: where this program goes on
/// running, it lowers the limit for the command itself.
fn address_space(inside: &Inside) -> u64 {
    match inside.program {
        Program::Workspace { .. } => inside.limits.memory_bytes.saturating_add(ALLOCATOR),
        Program::Python(_) | Program::Bash(_) | Program::Probe(_) => inside.limits.memory_bytes,
    }
}

fn become_program(inside: &Inside) -> io::Error {
    let mut command = match &inside.program {
        Program::Python(path) => {
            let mut command = Command::new(path);
            // Isolated mode: no user site directory, no PYTHON* variables; no byte code is written.
            command.args(["-I", "-B", "-X", "utf8", "-c", PYTHON]);
            command
        }
        Program::Bash(path) => {
            let mut command = Command::new(path);
            command.args(["--noprofile", "--norc", "-c", BASH, "bash"]);
            command.arg(inside.spare.map_or_else(String::new, |spare| spare.to_string()));
            command
        }
        Program::Workspace { .. } => return io::Error::other("a workspace has a program of its own"),
        Program::Probe(targets) => return probe::run(targets, &inside.confinement, &inside.work),
    };
    command.env_clear().envs(ENVIRONMENT).env("HOME", &inside.work).env("TMPDIR", &inside.work).exec()
}
