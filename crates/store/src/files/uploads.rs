//! Uploads: files that callers stored to name them in messages.

use std::time::Duration;

use longhaul_domain::{ExecutionId, FileId, SessionId, TenantId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{BodyHash, StoredFile};
use crate::{Store, StoreError, columns::Count};

/// An upload whose body is stored.
#[derive(Debug, Clone)]
pub struct NewUpload {
    pub tenant: TenantId,
    pub hash: BodyHash,
    /// Length in bytes.
    pub length: u64,
    pub media_type: String,
    pub name: Option<String>,
    /// Time for which it is kept.
    pub kept: Duration,
}

impl Store {
    /// Names a stored body. The same body under the same name and type is the same file, whose time begins again.
    /// Returns true beside a new file.
    ///
    /// # Errors
    /// Postgres is unavailable, or the body is not stored.
    pub async fn put_upload(&self, new: NewUpload) -> Result<(StoredFile, bool), StoreError> {
        let row = sqlx::query!(
            r#"
            insert into files as f (id, tenant_id, hash, media_type, name, bytes, created_at, expires_at)
            select $1, $2, $3, $4, $5, $6, now, now + $7::float8 * interval '1 second' from longhaul_now() as now
            on conflict (tenant_id, hash, media_type, coalesce(name, ''))
                do update set expires_at = greatest(f.expires_at, excluded.expires_at)
            returning id, created_at, expires_at, (xmax = 0) as "is_new!"
            "#,
            FileId::random().0,
            new.tenant.0,
            &new.hash,
            new.media_type,
            new.name,
            i64::try_from(new.length).unwrap_or(i64::MAX),
            new.kept.as_secs_f64(),
        )
        .fetch_one(&self.pool)
        .await?;
        let file = StoredFile {
            id: FileId(row.id),
            hash: new.hash,
            media_type: new.media_type,
            name: new.name,
            bytes: new.length,
            created_at: row.created_at,
            expires_at: Some(row.expires_at),
        };
        Ok((file, row.is_new))
    }

    /// The uploads of these ids that the tenant has, in no order.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_uploads(&self, tenant: TenantId, ids: &[FileId]) -> Result<Vec<StoredFile>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let files = sqlx::query_as!(
            StoredFile,
            r#"
            select id as "id: _", hash as "hash: _", media_type, name, bytes as "bytes: Count", created_at,
                expires_at as "expires_at?"
            from files where id = any ($1) and tenant_id = $2 and expires_at > longhaul_now()
            "#,
            &ids,
            tenant.0,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(files)
    }

    /// Deletes an upload. Returns false if the tenant has no such upload.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn delete_upload(&self, tenant: TenantId, id: FileId) -> Result<bool, StoreError> {
        let deleted = sqlx::query!("delete from files where id = $1 and tenant_id = $2", id.0, tenant.0)
            .execute(&self.pool)
            .await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// The files attached to an execution, in no order.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn attached_files(&self, execution: ExecutionId) -> Result<Vec<StoredFile>, StoreError> {
        let files = sqlx::query_as!(
            StoredFile,
            r#"
            select id as "id: _", hash as "hash: _", media_type, name, bytes as "bytes: Count", created_at,
                null::timestamptz as expires_at
            from execution_files where execution_id = $1 and kind = 'input'
            "#,
            execution.0,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(files)
    }
}

/// Attaches uploads to an execution, and to its session if it has one. Returns false if one of them is gone.
pub(crate) async fn attach(
    connection: &mut PgConnection,
    (tenant, execution, session): (TenantId, ExecutionId, Option<SessionId>),
    files: &[FileId],
) -> Result<bool, StoreError> {
    if files.is_empty() {
        return Ok(true);
    }
    let ids: Vec<Uuid> = files.iter().map(|id| id.0).collect();
    let attached = sqlx::query_scalar!(
        r#"
        with found as materialized (
            select * from files where id = any ($3) and tenant_id = $2 and expires_at > longhaul_now() for key share
        ),
        attached as (
            insert into execution_files (
                execution_id, id, kind, tenant_id, hash, media_type, name, bytes, created_at
            )
            select $1, id, 'input', tenant_id, hash, media_type, name, bytes, longhaul_now() from found
            on conflict (execution_id, id) do nothing
        ),
        in_session as (
            insert into session_files (session_id, tenant_id, hash)
            select distinct $4::uuid, tenant_id, hash from found where $4::uuid is not null
            on conflict (session_id, hash) do nothing
        )
        select count(*) as "found!" from found
        "#,
        execution.0,
        tenant.0,
        &ids,
        session.map(|session| session.0),
    )
    .fetch_one(connection)
    .await?;
    Ok(usize::try_from(attached).is_ok_and(|attached| attached == ids.len()))
}
