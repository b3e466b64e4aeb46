//! Executions whose caller asked not to store them.

use std::time::Duration;

use longhaul_domain::{ExecutionId, TenantId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    history::erasure::{Erased, Erasure},
};

/// The duty as executions that it sets aside name it.
const ERASE: &str = "erase unstored executions";
/// Pause before another look at one that is due and has not ended, in seconds.
const ASK_AGAIN: f64 = 30.0;

impl Store {
    /// Keeps an execution that its caller asked not to store for `time` from now, and until its end if that is later. A
    /// repeat sets the time anew. May precede the submit, so that no death in between leaves it stored.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn keep_unstored(&self, id: ExecutionId, time: Duration) -> Result<(), StoreError> {
        sqlx::query!(
            "insert into unstored (execution_id, keep_until) values ($1, longhaul_now() + $2 * interval '1 second') \
             on conflict (execution_id) do update set keep_until = excluded.keep_until",
            id.0,
            time.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Lets those of these executions that are not stored be erased as soon as they have ended.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn let_go_unstored(&self, ids: &[ExecutionId]) -> Result<(), StoreError> {
        sqlx::query!(
            "update unstored set keep_until = longhaul_now() \
             where execution_id = any ($1) and keep_until > longhaul_now()",
            &ids.iter().map(|id| id.0).collect::<Vec<_>>(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Erases up to `limit` executions that are not stored, whose time is over and that have ended with their
    /// descendants. Returns them.
    ///
    /// # Errors
    /// Postgres is unavailable; a repeat erases the rest.
    pub async fn erase_unstored(&self, limit: i64) -> Result<Vec<Erased>, StoreError> {
        // One under way is put off, so that the next runs do not read it again.
        let due = sqlx::query!(
            r#"
            with due as materialized (
                select u.execution_id, e.tenant_id, e.finished_at is not null as has_ended
                from unstored u left join executions e on e.id = u.execution_id
                where u.keep_until <= longhaul_now() and not exists (
                    select from set_aside s
                    where s.what = $2 and s.subject = u.execution_id::text and s.next_at > longhaul_now()
                )
                order by u.keep_until limit $1
            ),
            put_off as (
                update unstored u set keep_until = longhaul_now() + $3 * interval '1 second'
                from due where u.execution_id = due.execution_id and due.tenant_id is not null and not due.has_ended
            ),
            gone as (
                delete from unstored u using due where u.execution_id = due.execution_id and due.tenant_id is null
            )
            select execution_id as "execution_id!", tenant_id as "tenant_id!" from due
            where has_ended and tenant_id is not null
            "#,
            limit,
            ERASE,
            ASK_AGAIN,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut erased = Vec::new();
        for row in due {
            let tenant = TenantId(row.tenant_id);
            match self.erase_one_unstored(tenant, row.execution_id).await {
                Ok(some) => erased.extend(some),
                Err(error) if error.is_about_item() => {
                    self.set_aside(ERASE, row.execution_id, Some(tenant), &error).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(erased)
    }

    async fn erase_one_unstored(&self, tenant: TenantId, id: Uuid) -> Result<Vec<Erased>, StoreError> {
        match self.erase_execution(tenant, ExecutionId(id)).await? {
            Erasure::Done(erased) => {
                sqlx::query!("delete from unstored where execution_id = $1", id).execute(&self.pool).await?;
                self.clear_set_aside(ERASE, id).await?;
                Ok(erased)
            }
            // A descendant is under way.
            Erasure::NotEnded(_) => {
                sqlx::query!(
                    "update unstored set keep_until = longhaul_now() + $2 * interval '1 second' \
                     where execution_id = $1",
                    id,
                    ASK_AGAIN,
                )
                .execute(&self.pool)
                .await?;
                Ok(Vec::new())
            }
            Erasure::NotFound => Ok(Vec::new()),
        }
    }
}
