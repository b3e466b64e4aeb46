//! Keys as their owners manage them: issue, list, rotate, revoke.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_domain::{ApiKeyId, TenantId};
use secrecy::ExposeSecret;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    api_keys::{ApiKey, IssuedKey, Pepper, Scope, random_key, select_keys},
    holdings::settle_channels,
    scope::TenantScope,
};
use crate::{Store, StoreError};

/// Keys of a tenant, those included that ended within 90 days.
pub const MAX_KEYS: i64 = 1_000;
/// Time for which a revoked or expired key is listed; the next new key of its tenant deletes it afterwards.
const KEEP_ENDED: Duration = Duration::from_secs(90 * 24 * 3_600);

/// A key to issue.
#[derive(Debug, Clone, Copy)]
pub struct NewKey<'a> {
    pub tenant: TenantId,
    pub name: &'a str,
    pub scopes: &'a [Scope],
    pub expires_at: Option<DateTime<Utc>>,
}

/// A key to rotate.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    pub tenant: TenantId,
    pub id: ApiKeyId,
    /// Time for which the old key is still accepted, unless it expires earlier.
    pub overlap: Duration,
    /// End of the new key.
    pub expires_at: Option<DateTime<Utc>>,
}

/// Result of a request for a new key.
#[derive(Debug, Clone)]
pub enum Issue {
    Issued(IssuedKey),
    /// The tenant has [`MAX_KEYS`].
    TooMany,
    /// The key to rotate does not exist, was revoked or has expired.
    NotActive,
}

impl Store {
    /// Issues a key that does not expire.
    ///
    /// # Errors
    /// There is no such tenant, it has [`MAX_KEYS`], or Postgres is unavailable.
    pub async fn issue_api_key(
        &self,
        tenant: TenantId,
        name: &str,
        scopes: &[Scope],
        pepper: &Pepper,
    ) -> Result<IssuedKey, StoreError> {
        match self.issue_key(&NewKey { tenant, name, scopes, expires_at: None }, pepper).await? {
            Issue::Issued(key) => Ok(key),
            Issue::TooMany | Issue::NotActive => {
                Err(StoreError::Conflict(format!("the tenant has {MAX_KEYS} keys; revoke some")))
            }
        }
    }

    /// Issues a key. The result is the only place where it is ever shown.
    ///
    /// # Errors
    /// There is no such tenant, or Postgres is unavailable.
    pub async fn issue_key(&self, new: &NewKey<'_>, pepper: &Pepper) -> Result<Issue, StoreError> {
        let mut transaction = self.pool.begin().await?;
        if !has_room(&mut transaction, new.tenant).await? {
            return Ok(Issue::TooMany);
        }
        let (key, prefix) = random_key()?;
        let id = Uuid::new_v4();
        sqlx::query!(
            r#"
            insert into api_keys (id, tenant_id, name, prefix, hash, scopes, created_at, expires_at)
            values ($1, $2, $3, $4, $5, $6, longhaul_now(), $7)
            "#,
            id,
            new.tenant.0,
            new.name,
            prefix,
            pepper.key_hash(key.expose_secret()),
            &new.scopes.iter().map(ToString::to_string).collect::<Vec<_>>(),
            new.expires_at,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Issue::Issued(IssuedKey { id: ApiKeyId(id), key, prefix }))
    }

    /// Issues a key with the name and the scopes of another, which expires after the overlap. A repeated rotation,
    /// after a lost answer, issues another key.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn rotate_key(&self, rotation: &Rotation, pepper: &Pepper) -> Result<Issue, StoreError> {
        let mut transaction = self.pool.begin().await?;
        if !has_room(&mut transaction, rotation.tenant).await? {
            return Ok(Issue::TooMany);
        }
        let (key, prefix) = random_key()?;
        let id = Uuid::new_v4();
        let rotated = sqlx::query!(
            r#"
            with old as (
                update api_keys
                set replaced_by = $3, expires_at = least(expires_at, longhaul_now() + $4::float8 * interval '1 second')
                where id = $1 and tenant_id = $2 and revoked_at is null and not is_account
                    and (expires_at is null or expires_at > longhaul_now())
                returning name, scopes
            )
            insert into api_keys (id, tenant_id, name, prefix, hash, scopes, created_at, expires_at)
            select $3, $2, name, $5, $6, scopes, longhaul_now(), $7 from old
            "#,
            rotation.id.0,
            rotation.tenant.0,
            id,
            rotation.overlap.as_secs_f64(),
            prefix,
            pepper.key_hash(key.expose_secret()),
            rotation.expires_at,
        )
        .execute(&mut *transaction)
        .await?;
        if rotated.rows_affected() == 0 {
            return Ok(Issue::NotActive);
        }
        transaction.commit().await?;
        Ok(Issue::Issued(IssuedKey { id: ApiKeyId(id), key, prefix }))
    }

    /// Up to `limit` keys of these tenants, newest first, after the key `after`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_api_keys(
        &self,
        reach: &TenantScope,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let tenants = reach.ids();
        let keys = select_keys!(
            r#"
            where ($1::uuid[] is null or k.tenant_id = any ($1)) and not k.is_account and (
                $2::uuid is null
                or (k.created_at, k.id) < (select last.created_at, last.id from api_keys last where last.id = $2)
            )
            order by k.created_at desc, k.id desc
            limit $3
            "#,
            tenants.as_deref(),
            after,
            limit,
        );
        Ok(keys.fetch_all(&self.pool).await?)
    }

    /// The key or account of these tenants with that id.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_key_of(&self, reach: &TenantScope, id: ApiKeyId) -> Result<Option<ApiKey>, StoreError> {
        let tenants = reach.ids();
        let key = select_keys!(
            "where k.id = $2 and ($1::uuid[] is null or k.tenant_id = any ($1))",
            tenants.as_deref(),
            id.0,
        );
        Ok(key.fetch_optional(&self.pool).await?)
    }

    /// Revokes a key, if it was not revoked before; API processes honour it within 10 s. Returns its hash, or `None` if
    /// these tenants have no such key.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn revoke_key(&self, reach: &TenantScope, id: ApiKeyId) -> Result<Option<Vec<u8>>, StoreError> {
        let tenants = reach.ids();
        let mut transaction = self.pool.begin().await?;
        let revoked = sqlx::query!(
            "update api_keys set revoked_at = coalesce(revoked_at, longhaul_now()) \
             where id = $2 and ($1::uuid[] is null or tenant_id = any ($1)) and not is_account \
             returning hash, tenant_id",
            tenants.as_deref(),
            id.0,
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(revoked) = revoked else { return Ok(None) };
        settle_channels(&mut transaction, revoked.tenant_id).await?;
        transaction.commit().await?;
        Ok(Some(revoked.hash))
    }

    /// Revokes the keys of a tenant with that id or prefix; API processes honour it within 10 s. Returns those
    /// revoked.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn revoke_api_key(&self, tenant: TenantId, id_or_prefix: &str) -> Result<Vec<ApiKeyId>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let revoked = sqlx::query_scalar!(
            "update api_keys set revoked_at = longhaul_now() \
             where tenant_id = $1 and revoked_at is null and not is_account and (id::text = $2 or prefix = $2) \
             returning id",
            tenant.0,
            id_or_prefix,
        )
        .fetch_all(&mut *transaction)
        .await?;
        settle_channels(&mut transaction, tenant.0).await?;
        transaction.commit().await?;
        Ok(revoked.into_iter().map(ApiKeyId).collect())
    }

    /// Notes that keys were used just now, each at most once a minute.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn note_key_uses(&self, ids: &[ApiKeyId]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        sqlx::query!(
            "update api_keys set last_used_at = longhaul_now() \
             where id = any ($1) and (last_used_at is null or last_used_at < longhaul_now() - interval '1 minute')",
            &ids,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

/// Deletes what ended long ago, and returns false if the tenant has [`MAX_KEYS`] nevertheless. Requests of one tenant
/// pass here one at a time, so that two do not both find the last place.
async fn has_room(connection: &mut PgConnection, tenant: TenantId) -> Result<bool, StoreError> {
    let lock = format!("longhaul.api_keys {}", tenant.0);
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", lock).execute(&mut *connection).await?;
    sqlx::query!(
        "delete from api_keys \
         where tenant_id = $1 and not is_account \
             and least(revoked_at, expires_at) < longhaul_now() - $2::float8 * interval '1 second'",
        tenant.0,
        KEEP_ENDED.as_secs_f64(),
    )
    .execute(&mut *connection)
    .await?;
    let count = sqlx::query_scalar!(
        r#"select count(*) as "n!" from api_keys where tenant_id = $1 and not is_account"#,
        tenant.0,
    );
    Ok(count.fetch_one(&mut *connection).await? < MAX_KEYS)
}
