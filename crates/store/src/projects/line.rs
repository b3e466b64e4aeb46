//! The line of a tenant: approved projects run in turn, as many at a time as may.
//!
//! What runs is counted under a lock of the tenant's line, so the count is the projects themselves: there is no slot to
//! leak, and no number to go wrong.

use longhaul_shared::domain::{ProjectId, TenantId};

use super::ends::leave_signal;
use crate::{Store, StoreError};

impl Store {
    /// Lets as many approved projects of a tenant run as there are places. Returns them, each with a signal left.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn admit_projects(&self, tenant: TenantId, max_running: u32) -> Result<Vec<ProjectId>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let key = format!("projects of {}", tenant.0);
        sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", key).execute(&mut *transaction).await?;
        // A statement of its own, with a snapshot later than the lock.
        let admitted = sqlx::query_scalar!(
            r#"
            with room as materialized (
                select $2::bigint - count(*) as n from projects where tenant_id = $1 and status = 'in_progress'
            ),
            next as materialized (
                select id from projects where tenant_id = $1 and status = 'approved' order by line_at, id
                limit (select greatest(n, 0) from room)
                for no key update skip locked
            ),
            begun as (
                update projects p
                set status = 'in_progress', line_at = null, started_at = coalesce(started_at, longhaul_now()),
                    event_seq = event_seq + 1
                from next where p.id = next.id and p.status = 'approved'
                returning p.id, p.event_seq
            ),
            noted as (
                insert into project_events (project_id, seq, at, kind, data)
                select id, event_seq, longhaul_now(), 'in_progress', '{}' from begun
            )
            select id from begun
            "#,
            tenant.0,
            i64::from(max_running),
        )
        .fetch_all(&mut *transaction)
        .await?;
        leave_signal(&mut transaction, &admitted).await?;
        transaction.commit().await?;
        Ok(admitted.into_iter().map(ProjectId).collect())
    }

    /// Tenants whose line has a project that may run, at most a hundred.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn lines_with_room(&self, max_running: u32) -> Result<Vec<TenantId>, StoreError> {
        let tenants = sqlx::query_scalar!(
            r#"
            select w.tenant_id from (select distinct tenant_id from projects where status = 'approved') w
            where $1::bigint > (
                select count(*) from projects p where p.tenant_id = w.tenant_id and p.status = 'in_progress'
            )
            limit 100
            "#,
            i64::from(max_running),
        );
        Ok(tenants.fetch_all(&self.pool).await?.into_iter().map(TenantId).collect())
    }
}
