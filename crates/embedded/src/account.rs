//! The user account of a private server. PostgreSQL refuses to run as root, and neither server needs root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Accounts tried in this order when running as root; the PostgreSQL packages create the first.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// A user and its primary group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// True if the process must change to this user, which only root can.
    switch: bool,
}

impl Account {
    /// The account of this process.
    pub(crate) fn own_account() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), switch: false }
    }

    /// The account for a server whose data directory is `dir`: this process's, unless it is root. Root uses the owner
    /// of an existing directory, so that it stays usable for that user, else an unprivileged system user.
    pub(crate) fn for_directory(dir: &Path) -> Self {
        let own = Self::own_account();
        if own.uid != 0 {
            return own;
        }
        if let Ok(found) = fs::metadata(dir)
            && found.uid() != 0
        {
            return Self { uid: found.uid(), gid: found.gid(), switch: true };
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        CANDIDATES
            .into_iter()
            .find_map(|name| lookup(&passwd, name))
            // 65534 is the conventional uid and gid of the unprivileged user.
            .unwrap_or(Self { uid: 65534, gid: 65534, switch: true })
    }

    /// Makes `command` run under this account.
    pub(crate) fn apply<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        if self.switch { command.uid(self.uid).gid(self.gid) } else { command }
    }

    /// Changes the owner of `path` to this account.
    pub(crate) fn own(&self, path: &Path) -> std::io::Result<()> {
        if self.switch { std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid)) } else { Ok(()) }
    }

    /// Returns true if this account can enter and write `dir`. Runs a probe process: below a closed directory (root's
    /// home) the mode of `dir` alone says nothing.
    pub(crate) fn can_enter(&self, dir: &Path) -> bool {
        let mut probe = Command::new("/bin/sh");
        probe.args(["-c", "cd -- \"$1\" && test -w .", "sh"]).arg(dir).current_dir("/");
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.apply(&mut probe).status().is_ok_and(|status| status.success())
    }
}

fn lookup(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { uid, gid, switch: true })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nnobodys:x:7:7::/:/bin/false\nnobody:x:65534:65533::/:/bin/false\n";

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        assert_eq!(lookup(PASSWD, "nobody"), Some(Account { uid: 65534, gid: 65533, switch: true }));
        assert_eq!(lookup(PASSWD, "postgres"), None);
    }
}
