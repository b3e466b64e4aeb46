//! Schedules and their firings, for `longhaul verify`.

use chrono::{DateTime, Utc};
use longhaul_domain::{ScheduleId, TenantId, schedule::ScheduleSpec};

use crate::{Store, StoreError, schedules::Firing};

/// A schedule after the run, with all its firings.
#[derive(Debug)]
pub struct AuditedSchedule {
    pub id: ScheduleId,
    pub spec: ScheduleSpec,
    /// Time after which its ticks begin.
    pub anchored_at: DateTime<Utc>,
    pub is_paused: bool,
    /// Tick that has not been fired; `None` if there is none any more.
    pub next_tick: Option<DateTime<Utc>>,
    pub firings: Vec<Firing>,
}

impl Store {
    /// Every schedule of a tenant.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn audited_schedules(&self, tenant: TenantId) -> Result<Vec<AuditedSchedule>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select id, spec::text as "spec!", anchored_at, paused_at is not null as "is_paused!", next_fire_at
            from schedules where tenant_id = $1 order by id
            "#,
            tenant.0,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut schedules = Vec::with_capacity(rows.len());
        for row in rows {
            let id = ScheduleId(row.id);
            let spec = serde_json::from_str(&row.spec)
                .map_err(|error| StoreError::Corrupt(format!("schedule {}: {error}", row.id)))?;
            schedules.push(AuditedSchedule {
                id,
                spec,
                anchored_at: row.anchored_at,
                is_paused: row.is_paused,
                next_tick: row.next_fire_at,
                firings: self.schedule_firings(id, None, i64::MAX).await?,
            });
        }
        Ok(schedules)
    }
}
