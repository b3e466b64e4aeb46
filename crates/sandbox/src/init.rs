//! `longhaul sandbox-init`: confines itself, then becomes the interpreter.
//!
//! Invariants: there is one thread; nothing of the request is read here; if any step fails, the interpreter is not
//! run.

use std::{io, os::unix::process::CommandExt as _, path::Path, process::Command};

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
};

const PYTHON: &str = include_str!("harness/python.py");
const BASH: &str = include_str!("harness/bash.sh");
/// Environment of the code. It takes nothing from the service's environment.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("USER", "sandbox"),
    ("LOGNAME", "sandbox"),
];

/// Runs the program that `inside` describes. Returns only if that fails, with the error.
#[must_use]
pub fn run(inside: &str) -> io::Error {
    let inside: Inside = match serde_json::from_str(inside) {
        Ok(inside) => inside,
        Err(error) => return error.into(),
    };
    match confine(&inside) {
        Ok(()) => become_program(&inside),
        Err(error) => error,
    }
}

fn confine(inside: &Inside) -> io::Result<()> {
    // Covers a warden that is killed itself; otherwise the warden kills by process group.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    umask(Mode::RWXG | Mode::RWXO);
    // Makes this process the OOM killer's first choice. Without a /proc of its own the write fails, which is
    // harmless.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    limits::apply(&inside.limits, inside.tasks)?;
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
        Program::Probe(targets) => return probe::run(targets, &inside.confinement, &inside.work),
    };
    command.env_clear().envs(ENVIRONMENT).env("HOME", &inside.work).env("TMPDIR", &inside.work).exec()
}
