//! Items that a duty or a run of `prune` could not handle: they are recorded and shown, and the rest goes on
//! (core-rules 30).
//!
//! A duty leaves an item alone until `next_at`, which comes later with each failure: its look for work has `not exists
//! (select from set_aside s where s.what = … and s.subject = x.id::text and s.next_at > longhaul_now())`.

use chrono::{DateTime, Utc};
use longhaul_domain::TenantId;
use longhaul_telemetry::metrics;
use serde::Serialize;
use uuid::Uuid;

use crate::{Store, StoreError};

/// Pause after the first failure, doubled by each further one, and the longest, in seconds.
const FIRST_PAUSE: f64 = 60.0;
const LONGEST_PAUSE: f64 = 86_400.0;
/// Days after the last attempt for which a row is kept.
const KEEP_DAYS: f64 = 30.0;

/// An item that could not be handled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// The duty, or the part of a run, that met it.
    pub what: String,
    /// Id of the item.
    pub subject: String,
    pub tenant_id: Option<Uuid>,
    /// Kind of the error (`StoreError::summary`).
    pub error: String,
    /// First attempt.
    pub since: DateTime<Utc>,
    /// Last attempt.
    pub at: DateTime<Utc>,
    pub attempts: i32,
}

/// Result of an act on items of which some may have been set aside.
#[derive(Debug)]
pub(crate) struct Apart<T> {
    pub(crate) done: Vec<T>,
    pub(crate) set_aside: u64,
}

impl Store {
    /// Records that an item could not be handled, and logs it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn set_aside(
        &self,
        what: &str,
        subject: Uuid,
        tenant: Option<TenantId>,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        metrics::item_set_aside(what);
        tracing::error!(what, subject = %subject, error = %error.summary(), "an item was set aside");
        sqlx::query!(
            r#"
            insert into set_aside as s (what, subject, tenant_id, error, since, at, next_at)
            select $1, $2, $3, $4, now.at, now.at, now.at + $5 * interval '1 second' from longhaul_now() as now (at)
            on conflict (what, subject) do update
            set error = excluded.error, at = excluded.at, attempts = s.attempts + 1,
                next_at = excluded.at + least($5 * 2 ^ least(s.attempts, 20), $6) * interval '1 second'
            "#,
            what,
            subject.to_string(),
            tenant.map(|tenant| tenant.0),
            error.summary(),
            FIRST_PAUSE,
            LONGEST_PAUSE,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// [`Self::each_apart`], of items whose tenants are not known.
    ///
    /// # Errors
    /// An error that is not about an item.
    pub(crate) async fn each_id_apart<T, F>(
        &self,
        what: &str,
        ids: &[Uuid],
        act: impl Fn(Vec<Uuid>) -> F,
    ) -> Result<Vec<T>, StoreError>
    where
        F: Future<Output = Result<Vec<T>, StoreError>>,
    {
        let items: Vec<(Uuid, Option<TenantId>)> = ids.iter().map(|id| (*id, None)).collect();
        Ok(self.each_apart(what, &items, act).await?.done)
    }

    /// Acts on items together, in halves if the database refuses one of them; that one is set aside alone.
    ///
    /// # Errors
    /// An error that is not about an item. What was done before it stands.
    pub(crate) async fn each_apart<T, F>(
        &self,
        what: &str,
        items: &[(Uuid, Option<TenantId>)],
        act: impl Fn(Vec<Uuid>) -> F,
    ) -> Result<Apart<T>, StoreError>
    where
        F: Future<Output = Result<Vec<T>, StoreError>>,
    {
        let mut apart = Apart { done: Vec::new(), set_aside: 0 };
        let mut parts = if items.is_empty() { Vec::new() } else { vec![items] };
        while let Some(part) = parts.pop() {
            let ids = part.iter().map(|(id, _)| *id).collect();
            match (act(ids).await, part) {
                (Ok(some), _) => apart.done.extend(some),
                (Err(error), _) if !error.is_about_item() => return Err(error),
                (Err(error), [(id, tenant)]) => {
                    self.set_aside(what, *id, *tenant, &error).await?;
                    apart.set_aside += 1;
                }
                (Err(_), _) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(apart)
    }

    /// Removes the record of an item that was handled after all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn clear_set_aside(&self, what: &str, subject: Uuid) -> Result<(), StoreError> {
        sqlx::query!("delete from set_aside where what = $1 and subject = $2", what, subject.to_string())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Removes the records of `what` that were not made again since `since`, because a whole run met those items no
    /// more.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn clear_set_aside_before(&self, what: &str, since: DateTime<Utc>) -> Result<(), StoreError> {
        sqlx::query!("delete from set_aside where what = $1 and at < $2", what, since).execute(&self.pool).await?;
        Ok(())
    }

    /// Deletes the records of items that nothing has tried for long.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(super) async fn tidy_set_aside(&self) -> Result<(), StoreError> {
        sqlx::query!("delete from set_aside where at < longhaul_now() - $1 * interval '1 day'", KEEP_DAYS)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The items set aside, newest attempt first; at most `limit`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_set_aside(&self, limit: i64) -> Result<Vec<SetAside>, StoreError> {
        let items = sqlx::query_as!(
            SetAside,
            "select what, subject, tenant_id, error, since, at, attempts from set_aside order by at desc limit $1",
            limit,
        );
        Ok(items.fetch_all(&self.pool).await?)
    }
}
