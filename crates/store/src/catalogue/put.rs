//! Puts of versions.

use uuid::Uuid;

/// Tries of a put that races with others for its key; each failed try means that another put won.
pub(super) const PUT_TRIES: u32 = 20;

/// Result of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put {
    /// The version that is now the latest.
    pub id: Uuid,
    /// Number of that version.
    pub version: i32,
    /// False if the latest version already had the same content.
    pub created: bool,
}
