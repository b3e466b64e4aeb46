//! The line of a tenant: approved projects run in turn, as many at a time as may.
//!
//! What runs is counted under a lock of the tenant's line, so the count is the projects themselves: there is no slot to
//! leak, and no number to go wrong.

use longhaul_domain::{ProjectId, TenantId};
use uuid::Uuid;

use super::ends::leave_signal;
use crate::{Store, StoreError};

/// Tenants that one look of the net examines.
const LINES: i64 = 20;

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

    /// Of the next tenants after `after` that have a line, those whose next project may run: a net, because what makes
    /// room moves the line. Also the last tenant looked at; none after the last of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn lines_with_room(
        &self,
        after: Option<Uuid>,
        max_running: u32,
    ) -> Result<(Vec<TenantId>, Option<Uuid>), StoreError> {
        let lines = sqlx::query!(
            r#"
            with recursive line (tenant_id, place) as (
                (
                    select tenant_id, 1 from projects
                    where status = 'approved' and tenant_id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
                    order by tenant_id limit 1
                )
                union all
                select (
                    select p.tenant_id from projects p
                    where p.status = 'approved' and p.tenant_id > line.tenant_id order by p.tenant_id limit 1
                ), place + 1
                from line where line.tenant_id is not null and place < $2::bigint
            )
            select tenant_id as "tenant_id!", $3::bigint > (
                select count(*) from projects p where p.tenant_id = line.tenant_id and p.status = 'in_progress'
            ) as "has_room!"
            from line where tenant_id is not null
            order by tenant_id
            "#,
            after,
            LINES,
            i64::from(max_running),
        )
        .fetch_all(&self.pool)
        .await?;
        let last = lines.last().filter(|_| lines.len() as i64 == LINES).map(|line| line.tenant_id);
        Ok((lines.into_iter().filter(|line| line.has_room).map(|line| TenantId(line.tenant_id)).collect(), last))
    }
}
