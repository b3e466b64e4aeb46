//! Messages about a workspace, between the caller and the service, and between the service and the confined process.

use serde::{Deserialize, Serialize};

use crate::wire::RunError;

/// Maximum bytes of the files of a workspace.
pub(crate) const MAX_BYTES: u64 = 256 << 20;
/// Maximum entries of a workspace.
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// Maximum bytes of one file.
pub(crate) const MAX_FILE_BYTES: u64 = 20 << 20;
/// Maximum bytes of a path, and of the target of a link.
pub(crate) const MAX_PATH: usize = 1_024;
/// Maximum bytes of a frame of JSON: that of the most entries with the longest paths, in short.
pub(crate) const MAX_HEAD: usize = 24 << 20;
/// Maximum bytes of a command: Linux limits one argument to 128 KiB.
pub(crate) const MAX_COMMAND: usize = 100_000;

/// The beginning of a request.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Head {
    pub(crate) command: String,
    #[serde(default)]
    pub(crate) timeout_seconds: Option<f64>,
    #[serde(default)]
    pub(crate) entries: Vec<Entry>,
}

/// A file, a symbolic link or an empty directory, by its path below the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Entry {
    pub(crate) path: String,
    #[serde(flatten)]
    pub(crate) node: Node,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Node {
    File {
        bytes: u64,
        /// SHA-256 in hexadecimal.
        hash: String,
        executable: bool,
        /// In an answer: the bytes follow. A file whose hash is one of the request's is not sent back.
        #[serde(default)]
        sent: bool,
    },
    Link {
        target: String,
    },
    Directory,
}

/// The service's view of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Reason why the run was stopped, or had no answer: then there are no entries.
    pub(crate) error: Option<RunError>,
}

/// What the command left, as the confined process saw it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Left {
    /// Exit status as in a shell; absent if the command exceeded its time.
    pub(crate) exit_code: Option<i32>,
    pub(crate) timed_out: bool,
    /// Reason why the files cannot be returned.
    pub(crate) error: Option<String>,
    pub(crate) entries: Vec<Entry>,
}
