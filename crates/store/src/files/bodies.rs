//! The bytes of files: one row per tenant and hash, with the bytes or the key of an object.

use std::time::Duration;

use longhaul_domain::TenantId;

use super::BodyHash;
use crate::{Store, StoreError};

/// Time from the store of a body to the first look if anything names it: longer than a request that stores a body and
/// then names it, and than a command of a workspace takes to return its files (two minutes).
pub const BODY_GRACE: Duration = Duration::from_secs(180);

/// Place of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyPlace {
    /// In Postgres.
    Row,
    /// In the object of this key.
    Object(String),
}

/// A body to store.
#[derive(Debug)]
pub struct NewBody<'a> {
    pub tenant: TenantId,
    pub hash: BodyHash,
    /// Length in bytes.
    pub length: u64,
    pub content: Content<'a>,
    /// Most bytes of all the tenant's bodies.
    pub quota: u64,
}

/// The bytes of a new body, or the object that holds them already.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    Bytes(&'a [u8]),
    Object(&'a str),
}

/// Result of storing a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutBody {
    Stored,
    /// The body was stored before, and stays for the grace period at least.
    Existing,
    /// The tenant's quota has no room; nothing was stored.
    OverQuota,
}

impl Store {
    /// Keeps a stored body for the grace period. Returns false if there is none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn keep_body(&self, tenant: TenantId, hash: &BodyHash) -> Result<bool, StoreError> {
        let kept = sqlx::query!(
            r#"
            update file_bodies set check_at = longhaul_now() + $3::float8 * interval '1 second'
            where tenant_id = $1 and hash = $2
            "#,
            tenant.0,
            hash,
            BODY_GRACE.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(kept.rows_affected() > 0)
    }

    /// Stores a body once. It stays for the grace period, in which something must name it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_body(&self, new: NewBody<'_>) -> Result<PutBody, StoreError> {
        let length = i64::try_from(new.length).unwrap_or(i64::MAX);
        let (body, object) = match new.content {
            Content::Bytes(bytes) => (Some(bytes), None),
            Content::Object(key) => (None, Some(key)),
        };
        let mut transaction = self.pool.begin().await?;
        let is_new = sqlx::query_scalar!(
            r#"
            insert into file_bodies as b (tenant_id, hash, bytes, body, object_key, created_at, check_at)
            select $1, $2, $3, $4, $5, now, now + $6::float8 * interval '1 second' from longhaul_now() as now
            on conflict (tenant_id, hash) do update set check_at = excluded.check_at
            returning (xmax = 0) as "is_new!"
            "#,
            new.tenant.0,
            &new.hash,
            length,
            body,
            object,
            BODY_GRACE.as_secs_f64(),
        )
        .fetch_one(&mut *transaction)
        .await?;
        if !is_new {
            transaction.commit().await?;
            return Ok(PutBody::Existing);
        }
        let fits = sqlx::query_scalar!(
            r#"
            insert into file_usage as u (tenant_id, bytes) select $1, $2::bigint where $2::bigint <= $3
            on conflict (tenant_id) do update set bytes = u.bytes + excluded.bytes
                where u.bytes + excluded.bytes <= $3
            returning true as "fits!"
            "#,
            new.tenant.0,
            length,
            i64::try_from(new.quota).unwrap_or(i64::MAX),
        )
        .fetch_optional(&mut *transaction)
        .await?;
        if fits.is_none() {
            transaction.rollback().await?;
            return Ok(PutBody::OverQuota);
        }
        if let Some(key) = object {
            sqlx::query!("delete from file_leftovers where object_key = $1", key).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(PutBody::Stored)
    }

    /// Place and length of a body; `None` if it is not stored.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_body(&self, tenant: TenantId, hash: &BodyHash) -> Result<Option<(BodyPlace, u64)>, StoreError> {
        let row = sqlx::query!(
            "select bytes, object_key from file_bodies where tenant_id = $1 and hash = $2",
            tenant.0,
            hash,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| (row.object_key.map_or(BodyPlace::Row, BodyPlace::Object), row.bytes.unsigned_abs())))
    }

    /// The bytes of a body in Postgres.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn read_body(&self, tenant: TenantId, hash: &BodyHash) -> Result<Option<Vec<u8>>, StoreError> {
        let body =
            sqlx::query_scalar!("select body from file_bodies where tenant_id = $1 and hash = $2", tenant.0, hash)
                .fetch_optional(&self.pool)
                .await?;
        Ok(body.flatten())
    }

    /// The bytes of a part of a body in Postgres.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn read_body_part(
        &self,
        tenant: TenantId,
        hash: &BodyHash,
        from: u64,
        bytes: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let place = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
        let part = sqlx::query_scalar!(
            "select substr(body, $3, $4) from file_bodies where tenant_id = $1 and hash = $2",
            tenant.0,
            hash,
            place(from + 1),
            place(bytes),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(part.flatten())
    }
}
