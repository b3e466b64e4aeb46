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

/// A row of a query for files.
struct FileRow {
    id: uuid::Uuid,
    hash: Vec<u8>,
    media_type: String,
    name: Option<String>,
    bytes: i64,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
}

impl TryFrom<FileRow> for StoredFile {
    type Error = crate::StoreError;

    fn try_from(row: FileRow) -> Result<Self, Self::Error> {
        let corrupt = |what: &str| crate::StoreError::Corrupt(format!("the {what} of file {} is invalid", row.id));
        Ok(Self {
            id: FileId(row.id),
            hash: row.hash.as_slice().try_into().map_err(|_| corrupt("hash"))?,
            media_type: row.media_type,
            name: row.name,
            bytes: u64::try_from(row.bytes).map_err(|_| corrupt("length"))?,
            created_at: row.created_at,
            expires_at: row.expires_at,
        })
    }
}

/// The hash in hexadecimal.
#[must_use]
pub fn hex_of(hash: &BodyHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
