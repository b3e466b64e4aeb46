//! How safe the server keeps what it acknowledged.

use super::{Store, StoreError};

/// The server's settings on which "committed" depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// Whether commits reach the disk.
    pub fsync: bool,
    /// `on`, `off`, `local`, `remote_write` or `remote_apply`.
    pub synchronous_commit: String,
    /// The standbys a commit waits for; empty when there are none.
    pub synchronous_standby_names: String,
}

impl Store {
    /// Asks the server for them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn durability(&self) -> Result<Durability, StoreError> {
        let (fsync, synchronous_commit, synchronous_standby_names): (bool, String, String) = sqlx::query_as(
            "select current_setting('fsync')::bool, current_setting('synchronous_commit'), \
             current_setting('synchronous_standby_names')",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Durability { fsync, synchronous_commit, synchronous_standby_names })
    }
}
