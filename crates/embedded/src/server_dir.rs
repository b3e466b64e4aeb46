//! The directory of a private server: reachable and owned by its account, closed to others.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::account::Account;
use crate::error::ServersError;

/// Directory of what lasts, for root: no cleaner of temporary files touches it.
const LASTING_BASE: &str = "/var/lib/longhaul";

/// The fate of the directory after the final stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Kept for the next start.
    Kept,
    /// Removed with its owner.
    Removed,
}

/// A directory prepared for a server.
#[derive(Debug, Clone)]
pub(crate) struct ServerDir {
    pub(crate) dir: PathBuf,
    pub(crate) account: Account,
    pub(crate) keep: Keep,
    /// Removes the directory when the last clone is dropped, unless it is kept.
    scratch: Arc<Scratch>,
    /// File lock held while any clone lives; the system releases it when the owner dies.
    _lock: Arc<File>,
}

#[derive(Debug)]
struct Scratch(Option<PathBuf>);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            // Best effort: the directory is below the system's temporary directory.
            let _ = fs::remove_dir_all(dir);
        }
    }
}

impl ServerDir {
    /// Prepares `wanted`. If the server's account cannot reach it (root's home is closed to others), prepares a
    /// directory elsewhere instead, where it lasts if it is kept, and links `wanted` to it: removing the link is then
    /// as good as removing the data.
    pub(crate) fn prepare(wanted: &Path, keep: Keep) -> Result<Self, ServersError> {
        let wanted = std::path::absolute(wanted).map_err(ServersError::io(format!("resolve {}", wanted.display())))?;
        let place = own_link(&wanted).unwrap_or_else(|| wanted.clone());
        let account = Account::for_directory(&place);
        let existed = place.exists();
        make(&place, &account)?;
        if account.can_enter(&place) {
            return Self::lock(place, account, keep);
        }
        if !existed {
            // Created above, and unusable.
            let _ = fs::remove_dir(&place);
        }
        let can_link = keep == Keep::Kept && !existed && place == wanted;
        let dir = substitute(&wanted, keep, can_link);
        make(&dir, &account)?;
        if can_link {
            symlink(&dir, &wanted).map_err(ServersError::io(format!("link {}", wanted.display())))?;
        }
        tracing::info!(
            server.wanted_dir = %wanted.display(),
            server.dir = %dir.display(),
            "{} cannot be reached by the unprivileged user the server runs as; its data is kept in {}",
            wanted.display(),
            dir.display(),
        );
        Self::lock(dir, account, keep)
    }

    /// Locks the directory for this process: two owners would create the same cluster twice.
    fn lock(dir: PathBuf, account: Account, keep: Keep) -> Result<Self, ServersError> {
        let path = dir.join("owner");
        let refused = || ServersError::io(format!("lock {}", path.display()));
        // As root, do not follow a link that the server's user may have put here.
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(no_follow);
        let mut file = options.open(&path).map_err(refused())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(ServersError::InUse { dir, pid: text.trim().parse().unwrap_or_default() });
            }
            Err(TryLockError::Error(error)) => return Err(refused()(error)),
        }
        let mut write = || {
            account.own(&path)?;
            file.set_len(0)?;
            file.write_all(std::process::id().to_string().as_bytes())
        };
        write().map_err(refused())?;
        let scratch = match keep {
            Keep::Kept => None,
            Keep::Removed => Some(dir.clone()),
        };
        Ok(Self { dir, account, keep, scratch: Arc::new(Scratch(scratch)), _lock: Arc::new(file) })
    }

    /// The directory, if it is removed with its owner.
    pub(crate) fn scratch(&self) -> Option<PathBuf> {
        self.scratch.0.clone()
    }

    /// Writes a file that only the server's user can read, atomically by a rename.
    pub(crate) fn write_private(&self, name: &str, text: &str) -> Result<PathBuf, ServersError> {
        let path = self.dir.join(name);
        let partial = self.dir.join(format!("{name}.partial"));
        let write = || {
            // Create the file anew, never through a link that the server's user may have put there.
            match fs::remove_file(&partial) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
            file.write_all(text.as_bytes())?;
            self.account.own(&partial)?;
            fs::rename(&partial, &path)
        };
        write().map_err(ServersError::io(format!("write {}", path.display())))?;
        Ok(path)
    }
}

/// The target of `path`, if that is a link that this process's user made.
fn own_link(path: &Path) -> Option<PathBuf> {
    let found = fs::symlink_metadata(path).ok()?;
    let is_own = found.file_type().is_symlink() && found.uid() == Account::own_account().uid;
    is_own.then(|| fs::read_link(path).ok()).flatten().filter(|target| target.is_absolute())
}

/// The directory in the place of one that cannot be reached: a new one, or, if nothing will point to it, always the
/// same.
fn substitute(wanted: &Path, keep: Keep, is_new: bool) -> PathBuf {
    let base = match keep {
        Keep::Kept => lasting_base().unwrap_or_else(std::env::temp_dir),
        Keep::Removed => std::env::temp_dir(),
    };
    let name = format!("longhaul-{:016x}", fingerprint(wanted));
    let numbered = (1_u32..).map(|number| base.join(format!("{name}-{number}"))).find(|dir| !dir.exists());
    numbered.filter(|_| is_new).unwrap_or_else(|| base.join(name))
}

/// [`LASTING_BASE`], open to the accounts of servers; `None` if this user cannot make it.
fn lasting_base() -> Option<PathBuf> {
    let base = PathBuf::from(LASTING_BASE);
    fs::create_dir_all(&base).ok()?;
    // Whatever the umask says.
    fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).ok()?;
    Some(base)
}

/// Creates `dir` with mode 0700 if it does not exist, and checks that `account` owns it. The check matters in a
/// world-writable directory.
fn make(dir: &Path, account: &Account) -> Result<(), ServersError> {
    if !dir.exists() {
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent).map_err(ServersError::io(format!("create {}", parent.display())))?;
        }
        fs::DirBuilder::new().mode(0o700).create(dir).map_err(ServersError::io(format!("create {}", dir.display())))?;
        account.own(dir).map_err(ServersError::io(format!("give {} to the server's user", dir.display())))?;
    }
    let found = fs::symlink_metadata(dir).map_err(ServersError::io(format!("read {}", dir.display())))?;
    if found.uid() == 0 && account.uid != 0 && found.is_dir() {
        // Left by a start that was interrupted between create and chown above.
        return account.own(dir).map_err(ServersError::io(format!("give {} to the server's user", dir.display())));
    }
    if found.uid() != account.uid {
        return Err(ServersError::ForeignDirectory { dir: dir.to_owned(), owner: found.uid(), expected: account.uid });
    }
    Ok(())
}

fn fingerprint(path: &Path) -> u64 {
    // Not a secret and not stored: it only has to be stable for the same path and build.
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}
