//! Removal of what nothing names: expired uploads, then bodies, then objects. Every step is bounded and safe to repeat.

use std::time::Duration;

use uuid::Uuid;

use crate::{Store, StoreError};

/// Rows of one step.
const BATCH: i64 = 500;
/// Time after which an object that was being written counts as left over: longer than any request.
const WRITING: Duration = Duration::from_secs(3_600);

/// Result of one step of the sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweptFiles {
    /// Uploads that expired.
    pub uploads: u64,
    /// Bodies that nothing named.
    pub bodies: u64,
    /// True if there may be more.
    pub has_more: bool,
}

impl Store {
    /// Deletes expired uploads, and bodies that nothing names; at most a batch of each.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn sweep_files(&self) -> Result<SweptFiles, StoreError> {
        let uploads = sqlx::query!(
            r#"
            delete from files where id in (
                select id from files where expires_at <= longhaul_now() order by expires_at limit $1
                for update skip locked
            )
            "#,
            BATCH,
        )
        .execute(&self.pool)
        .await?
        .rows_affected();
        let (looked_at, bodies) = self.sweep_bodies().await?;
        let batch = BATCH.unsigned_abs();
        Ok(SweptFiles { uploads, bodies, has_more: uploads >= batch || looked_at >= batch })
    }

    /// Numbers of bodies looked at, and deleted.
    async fn sweep_bodies(&self) -> Result<(u64, u64), StoreError> {
        let mut transaction = self.pool.begin().await?;
        // The lock comes first: what named a body before it is visible to the next statement, and nothing can name it
        // under the lock.
        let due = sqlx::query!(
            r#"
            select tenant_id, hash from file_bodies where check_at <= longhaul_now() order by check_at limit $1
            for update skip locked
            "#,
            BATCH,
        )
        .fetch_all(&mut *transaction)
        .await?;
        if due.is_empty() {
            return Ok((0, 0));
        }
        let looked_at = due.len() as u64;
        let (tenants, hashes): (Vec<Uuid>, Vec<Vec<u8>>) = due.into_iter().map(|row| (row.tenant_id, row.hash)).unzip();
        let deleted = sqlx::query_file_scalar!("src/sql/sweep_bodies.sql", &tenants, &hashes,)
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok((looked_at, deleted.unsigned_abs()))
    }

    /// Notes an object that is about to be written, so that it is removed if its body is never stored.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn note_object(&self, key: &str) -> Result<(), StoreError> {
        sqlx::query!(
            "insert into file_leftovers (object_key, due_at) \
             values ($1, longhaul_now() + $2::float8 * interval '1 second')",
            key,
            WRITING.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Has the sweep remove an object that was written for nothing.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn drop_object(&self, key: &str) -> Result<(), StoreError> {
        sqlx::query!("update file_leftovers set due_at = longhaul_now() where object_key = $1", key)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Objects to remove, at most a batch.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn leftover_objects(&self) -> Result<Vec<String>, StoreError> {
        let keys = sqlx::query_scalar!(
            "select object_key from file_leftovers where due_at <= longhaul_now() order by due_at limit $1",
            BATCH,
        );
        Ok(keys.fetch_all(&self.pool).await?)
    }

    /// Forgets an object that was removed.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_object(&self, key: &str) -> Result<(), StoreError> {
        sqlx::query!("delete from file_leftovers where object_key = $1", key).execute(&self.pool).await?;
        Ok(())
    }
}
