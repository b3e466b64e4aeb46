//! Selects the confinement at start by a self-test that tries to escape, and fails where no confinement holds.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::{
    options::{Choice, Language, Options},
    service::{Refused, Sandbox},
    setup::{Confinement, Program, Targets},
    wire::Request,
};

const BWRAP: [&str; 2] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"];
const NAMESPACES: [&str; 7] = ["user", "pid", "net", "ipc", "uts", "mnt", "cgroup"];
/// Time limit of one self-test, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason why the sandbox does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "this machine does not confine what would run here, so nothing is served:{}\n\
         install bubblewrap 0.8 or newer and allow user namespaces, or run a kernel with landlock",
        list(.0)
    )]
    Unconfined(Vec<String>),
    #[error("the self-test cannot be prepared: {0}")]
    Prepare(#[from] io::Error),
    /// A language is not installed, or lies where code may not read.
    #[error("{0}; set sandbox.languages to what is installed")]
    Language(String),
}

fn list(reasons: &[String]) -> String {
    reasons.iter().map(|reason| format!("\n  {reason}")).collect()
}

impl Sandbox {
    /// Tries each confinement, the strongest first. The returned sandbox has refused every escape attempt and runs
    /// each language.
    ///
    /// # Errors
    /// No confinement holds and `dangerously_run_unconfined` is not set, or a language does not run.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        // Processes of the same user may neither trace this process nor read its environment.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?;
        let (mut reasons, mut mute) = (Vec::new(), None);
        for confinement in candidates(&options, &mut reasons) {
            let sandbox = Self::new(options.clone(), confinement);
            let name = describe(&sandbox.confinement);
            let why = match sandbox.escapes().await? {
                Ok(escapes) if escapes.is_empty() => match sandbox.speaks().await {
                    Ok(()) => return Ok(sandbox),
                    Err(why) => mute.insert(format!("within {name} {why}")).clone(),
                },
                Ok(escapes) => format!("code could {}", escapes.join("; ")),
                Err(why) => why,
            };
            tracing::warn!("{name} cannot be used: {why}");
            reasons.push(format!("{name}: {why}"));
        }
        // A confinement that holds but does not run a language is no reason to run the language unconfined.
        if let Some(why) = mute {
            return Err(StartError::Language(why));
        }
        if !options.dangerously_run_unconfined {
            return Err(StartError::Unconfined(reasons));
        }
        let sandbox = Self::new(options, Confinement::Nothing);
        sandbox.speaks().await.map_err(StartError::Language)?;
        tracing::warn!(
            "NOTHING IS CONFINED: code runs with what this process may do, as dangerously_run_unconfined says"
        );
        Ok(sandbox)
    }

    /// Returns the probe's successful escapes, or the reason why it did not run.
    async fn escapes(&self) -> Result<Result<Vec<String>, String>, StartError> {
        let bait = Bait::lay(&self.options.scratch)?;
        let turn = match self.turn(String::new(), self.options.queue_wait).await {
            Ok(turn) => turn,
            Err(refused) => return Ok(Err(refused.to_string())),
        };
        let program = Program::Probe(Box::new(bait.targets()?));
        let ended = match self.run(turn, program, Vec::new(), self.limits(PATIENCE)).await {
            Ok(ended) => ended,
            Err(error) => return Ok(Err(error.to_string())),
        };
        Ok(serde_json::from_slice(&ended.answer).map_err(|_| {
            let said = String::from_utf8_lossy(&ended.stderr.kept);
            format!("the self-test did not run (status {}): {}", ended.exit_code, said.trim())
        }))
    }

    /// Checks that each language runs.
    async fn speaks(&self) -> Result<(), String> {
        for language in &self.options.languages {
            let (code, expected) = match language {
                Language::Python => ("result = [input_payload, sum([40, 2])]", "[null,42]"),
                Language::Bash => ("result=\"$input_payload $((40 + 2))\"", r#""null 42""#),
            };
            let request = Request {
                language: *language,
                code: code.to_owned(),
                input: Box::default(),
                seconds: PATIENCE.as_secs_f64(),
                allow_imports: true,
            };
            let outcome = self.execute(String::new(), request).await.map_err(|error: Refused| error.to_string())?;
            if outcome.result() != expected {
                return Err(format!("{} does not run: {outcome:?}", language.name()));
            }
        }
        Ok(())
    }
}

fn describe(confinement: &Confinement) -> &'static str {
    match confinement {
        Confinement::Namespaces { proc: true, .. } => "namespaces",
        Confinement::Namespaces { proc: false, .. } => "namespaces without /proc",
        Confinement::Landlock => "landlock",
        Confinement::Nothing => "nothing",
    }
}

fn candidates(options: &Options, reasons: &mut Vec<String>) -> Vec<Confinement> {
    let mut candidates = Vec::new();
    if options.confinement != Choice::Landlock {
        let installed = BWRAP.iter().map(PathBuf::from).find(|path| path.exists());
        match options.bwrap.clone().or(installed) {
            Some(bwrap) => {
                candidates.push(Confinement::Namespaces { bwrap: bwrap.clone(), proc: true });
                candidates.push(Confinement::Namespaces { bwrap, proc: false });
            }
            None => reasons.push(format!("namespaces: bubblewrap is not installed ({})", BWRAP.join(", "))),
        }
    }
    if options.confinement != Choice::Namespaces {
        candidates.push(Confinement::Landlock);
    }
    candidates
}

/// Targets of the probe, open to every user of this machine, so that only the confinement protects them.
struct Bait {
    directory: tempfile::TempDir,
    tcp: TcpListener,
    udp: UdpSocket,
    _socket: UnixListener,
}

impl Bait {
    fn lay(scratch: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("longhaul-sandbox-test-").tempdir_in(scratch)?;
        fs::write(directory.path().join("canary"), "everybody may read this")?;
        let socket = UnixListener::bind(directory.path().join("socket"))?;
        fs::set_permissions(directory.path().join("socket"), fs::Permissions::from_mode(0o777))?;
        // Last: in a world-writable directory another user could plant a symlink for root to follow. The sticky bit
        // keeps other users from replacing the files.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777))?;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self { directory, tcp, udp, _socket: socket })
    }

    fn targets(&self) -> io::Result<Targets> {
        let namespaces = NAMESPACES.iter().filter_map(|name| {
            let link = fs::read_link(format!("/proc/self/ns/{name}")).ok()?;
            Some(((*name).to_owned(), link.to_string_lossy().into_owned()))
        });
        Ok(Targets {
            canary: self.directory.path().join("canary"),
            socket: self.directory.path().join("socket"),
            tcp: self.tcp.local_addr()?.port(),
            udp: self.udp.local_addr()?.port(),
            service: rustix::process::getpid().as_raw_nonzero().get(),
            namespaces: namespaces.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::symlink,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    /// Acts as another user of this machine: plants symlinks only in world-writable directories.
    fn plant(scratch: &Path, victim: &Path) {
        for directory in fs::read_dir(scratch).unwrap().flatten() {
            let Ok(metadata) = directory.metadata() else { continue };
            if metadata.permissions().mode() & 0o002 != 0 {
                for name in ["canary", "socket"] {
                    let _ = symlink(victim, directory.path().join(name));
                }
            }
        }
    }

    #[test]
    fn planted_symlinks_do_not_redirect_bait_files() {
        let directory = tempfile::tempdir().unwrap();
        let (scratch, victim) = (directory.path().join("scratch"), directory.path().join("victim"));
        fs::create_dir(&scratch).unwrap();
        fs::write(&victim, "as it was").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let done = AtomicBool::new(false);
        let laid: io::Result<Vec<_>> = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    plant(&scratch, &victim);
                }
            });
            let laid = (0..300).map(|_| Bait::lay(&scratch).map(drop));
            let laid = laid.collect();
            done.store(true, Ordering::Relaxed);
            laid
        });
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(laid.is_ok(), "{laid:?}");
    }
}
