//! The process's limit of open files: a connection each to callers, models and servers.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as the process may, since the usual 1,024 are too few for thousands of connections, and
/// returns what it is now.
pub(crate) fn raise() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files could not be raised");
            limit.current
        }
    };
    now.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}
