//! Files (docs/design/files.md): bodies are stored once per tenant and hash; uploads, executions, sessions and
//! workspaces name them. A body that nothing names any more is removed by the sweep.

mod artifacts;
mod bodies;
mod sweep;
mod uploads;
mod workspaces;

use chrono::{DateTime, Utc};
use longhaul_domain::{FileId, message::FileRef};

pub use artifacts::{Kept, MAX_ARTIFACTS, NewArtifact};
pub use bodies::{BODY_GRACE, BodyPlace, Content, NewBody, PutBody};
pub use sweep::SweptFiles;
pub use uploads::NewUpload;
pub(crate) use uploads::attach;
pub use workspaces::{StoredWorkspace, WorkspaceChange, WorkspaceEntry, WorkspaceId, WorkspaceNode, WorkspaceResult};

/// SHA-256 of a body.
pub type BodyHash = [u8; 32];

/// A file with its name, as an upload, an input or an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub id: FileId,
    pub hash: BodyHash,
    pub media_type: String,
    pub name: Option<String>,
    /// Length in bytes.
    pub bytes: u64,
    pub created_at: DateTime<Utc>,
    /// End of an upload; `None` for the file of an execution, which lives as long as that.
    pub expires_at: Option<DateTime<Utc>>,
}

impl StoredFile {
    /// The file as a message names it.
    #[must_use]
    pub fn reference(&self) -> FileRef {
        FileRef {
            hash: hex_of(&self.hash),
            media_type: self.media_type.clone(),
            bytes: self.bytes,
            id: Some(self.id),
            name: self.name.clone(),
        }
    }
}

/// The hash in hexadecimal.
#[must_use]
pub fn hex_of(hash: &BodyHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
