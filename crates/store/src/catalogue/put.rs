//! Puts of versions.

use longhaul_domain::ApiKeyId;
use uuid::Uuid;

use crate::{Store, StoreError};

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

impl Store {
    /// Notes the key that put a version of an agent, a definition or a skill, unless the put made none.
    ///
    /// # Errors
    /// Postgres is unavailable: the version has no author.
    pub async fn note_author(&self, put: Put, key: ApiKeyId) -> Result<(), StoreError> {
        if !put.created {
            return Ok(());
        }
        sqlx::query!(
            r#"
            with agents as (
                update agent_versions set written_by = $2 where id = $1
            ),
            definitions as (
                update definition_versions set written_by = $2 where id = $1
            )
            update skill_versions set written_by = $2 where id = $1
            "#,
            put.id,
            key.0,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
