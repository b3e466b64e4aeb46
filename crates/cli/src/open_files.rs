//! The process's limit of open files: each connection to a caller, a model or a server needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit, since the usual 1,024 are too few for thousands of connections. Returns
/// the limit in force.
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
