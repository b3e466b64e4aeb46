//! Artifacts: files that an execution leaves. They live as long as the execution.

use longhaul_domain::{ExecutionId, FileId, LeaseToken, WorkerId};
use uuid::Uuid;

use super::{BodyHash, StoredFile};
use crate::{Store, StoreError, columns::Count, history::journal::Hash, tenants::scope::TenantScope};

/// Most artifacts of one execution.
pub const MAX_ARTIFACTS: i64 = 1_000;

/// A file that a call left, whose body is stored.
#[derive(Debug, Clone)]
pub struct NewArtifact {
    /// The same for a repetition of the call with the same result.
    pub id: FileId,
    pub hash: BodyHash,
    /// Length in bytes.
    pub length: u64,
    pub media_type: String,
    pub name: String,
}

/// A row of the type `artifact`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "artifact")]
struct ArtifactRow {
    id: Uuid,
    hash: Vec<u8>,
    media_type: String,
    name: String,
    bytes: i64,
}

impl From<&NewArtifact> for ArtifactRow {
    fn from(of: &NewArtifact) -> Self {
        Self {
            id: of.id.0,
            hash: of.hash.to_vec(),
            media_type: of.media_type.clone(),
            name: of.name.clone(),
            bytes: i64::try_from(of.length).unwrap_or(i64::MAX),
        }
    }
}

/// Result of keeping artifacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    All,
    /// The execution has [`MAX_ARTIFACTS`] already; none was kept.
    TooMany,
}

impl Store {
    /// Keeps the files that a call left, under the lease of its attempt. Repeating it changes nothing.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; Postgres is unavailable.
    pub async fn keep_artifacts(
        &self,
        (worker, execution, token): (WorkerId, ExecutionId, LeaseToken),
        call_key: &Hash,
        files: &[NewArtifact],
    ) -> Result<Kept, StoreError> {
        let row = sqlx::query_file!(
            "src/sql/keep_artifacts.sql",
            worker.0,
            execution.0,
            token.0,
            &call_key[..],
            files.iter().map(ArtifactRow::from).collect::<Vec<_>>() as _,
            MAX_ARTIFACTS,
        )
        .fetch_optional(&self.pool)
        .await?;
        match row {
            None => Err(StoreError::LeaseLost),
            Some(row) if row.has_room => Ok(Kept::All),
            Some(_) => Ok(Kept::TooMany),
        }
    }

    /// The artifacts of an execution, the oldest first; `None` if there is no such execution.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn artifacts(
        &self,
        scope: &TenantScope,
        execution: ExecutionId,
    ) -> Result<Option<Vec<StoredFile>>, StoreError> {
        if self.get_execution(scope, execution).await?.is_none() {
            return Ok(None);
        }
        let files = sqlx::query_as!(
            StoredFile,
            r#"
            select id as "id: _", hash as "hash: _", media_type, name, bytes as "bytes: Count", created_at,
                null::timestamptz as expires_at
            from execution_files where execution_id = $1 and kind = 'artifact'
            order by created_at, id
            "#,
            execution.0,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(Some(files))
    }
}
