//! The confined process of a workspace: writes the files, runs the command, and sends back what it left.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{
    files,
    wire::{Head, Left, MAX_HEAD, Node},
};
use crate::{frames, setup::Confinement};

/// Interval at which the command is checked for its end.
const TICK: Duration = Duration::from_millis(2);
/// Closes the descriptor of this program's file, which has the number `$1`, limits the address space to `$2` KiB, and
/// runs the command.
const SHELL: &str = r#"if [[ $1 ]]; then eval "exec $1<&-"; fi
ulimit -v "$2" || exit 125
LONGHAUL_COMMAND=$3; set --; eval "$LONGHAUL_COMMAND""#;

/// Settings of one run.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) bash: &'a Path,
    pub(crate) work: &'a Path,
    pub(crate) environment: &'a [(&'a str, &'a str)],
    pub(crate) confinement: &'a Confinement,
    /// Descriptor of this program's file.
    pub(crate) spare: Option<i32>,
    pub(crate) time: Duration,
    /// Address space of one process of the command.
    pub(crate) memory_bytes: u64,
}

impl Runner<'_> {
    /// Answers one request over standard input, which is a socket.
    ///
    /// # Errors
    /// The request cannot be read, or the answer not be sent.
    pub(crate) fn run(&self) -> io::Result<()> {
        // A duplicate is closed when the command starts, standard input is not.
        let mut channel = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let head: Head = serde_json::from_slice(&read_head(&mut channel)?)?;
        let root = self.work.join("workspace");
        for directory in [&root, &self.work.join("home"), &self.work.join("tmp")] {
            fs::create_dir(directory)?;
        }
        let left = match files::unpack(&root, &head.entries, &mut io::BufReader::new(&mut channel)) {
            Ok(()) => self.left(&root, &head)?,
            Err(error) => Left { error: Some(format!("the files cannot be written: {error}")), ..Left::default() },
        };
        frames::write(&mut channel, &serde_json::to_vec(&left)?)?;
        files::send(&root, &left.entries, &mut channel)?;
        channel.flush()
    }

    fn left(&self, root: &Path, head: &Head) -> io::Result<Left> {
        let ended = self.command(root, &head.command)?;
        if matches!(self.confinement, Confinement::Namespaces { .. }) {
            // Ends every other process of these namespaces, so that nothing changes the files while they are read.
            // Elsewhere that signal would reach other runs.
            let _ = kill_process_group(Pid::INIT, Signal::KILL);
        }
        let known: HashSet<&str> = head
            .entries
            .iter()
            .filter_map(|entry| match &entry.node {
                Node::File { hash, .. } => Some(hash.as_str()),
                Node::Link { .. } | Node::Directory => None,
            })
            .collect();
        let exit_code = ended.map(code);
        let is_directory = fs::symlink_metadata(root).is_ok_and(|metadata| metadata.is_dir());
        let entries = if is_directory { files::survey(root, &known) } else { Ok(Vec::new()) };
        let (entries, error) = match entries {
            Ok(entries) => (entries, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Ok(Left { exit_code, timed_out: ended.is_none(), error, entries })
    }

    /// Runs the command in `root`; `None` if it exceeds its time.
    fn command(&self, root: &Path, command: &str) -> io::Result<Option<ExitStatus>> {
        let spare = self.spare.map_or_else(String::new, |spare| spare.to_string());
        let mut child = Command::new(self.bash)
            .args(["--noprofile", "--norc", "-c", SHELL, "bash"])
            .args([spare.as_str(), &(self.memory_bytes / 1_024).to_string(), command])
            .current_dir(root)
            .stdin(Stdio::null())
            .env_clear()
            .envs(self.environment.iter().copied())
            .env("HOME", self.work.join("home"))
            .env("TMPDIR", self.work.join("tmp"))
            .spawn()?;
        let deadline = Instant::now() + self.time;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            thread::sleep(TICK);
        }
    }
}

fn read_head(channel: &mut File) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    channel.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_HEAD {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the head is too long"));
    }
    let mut head = vec![0; length];
    channel.read_exact(&mut head)?;
    Ok(head)
}

fn code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(125)
}
