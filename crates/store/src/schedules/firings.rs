//! The history of a schedule.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, ScheduleId};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::NotStarted;
use crate::{Store, StoreError};

/// Age from which on firings are deleted, in days.
const KEEP_DAYS: i32 = 90;

/// Cause of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FiringKind {
    Tick,
    /// A person asked for it.
    Manual,
}

/// State of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FiringState {
    /// It waits for the end of the run under way.
    Queued,
    Running,
    /// Its execution has ended, and descendants of it may not have.
    Ended,
    Over,
    /// No execution was started.
    Skipped,
}

longhaul_domain::named!(FiringKind, FiringState);

/// One firing of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    pub tick: DateTime<Utc>,
    pub kind: FiringKind,
    /// Oldest tick that it stands for.
    pub first_tick: DateTime<Utc>,
    pub state: FiringState,
    pub reason: Option<NotStarted>,
    pub execution: Option<ExecutionId>,
    /// Time at which it was stored.
    pub fired_at: DateTime<Utc>,
    /// Status of its execution: now, or at its end.
    pub status: Option<String>,
    pub failure_code: Option<String>,
}

impl Store {
    /// The newest firings of a schedule before `before`, at most `limit`.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn schedule_firings(
        &self,
        schedule: ScheduleId,
        before: Option<DateTime<Utc>>,
        limit: i64,
    ) -> Result<Vec<Firing>, StoreError> {
        let firings = sqlx::query_as!(
            Firing,
            r#"
            select f.tick, f.kind as "kind: _", f.first_tick, f.state as "state: _", f.reason as "reason: _",
                f.execution_id as "execution: _", f.fired_at,
                coalesce(f.status, e.status::text) as status, coalesce(f.failure_code, e.failure_code) as failure_code
            from schedule_firings f left join executions e on e.id = f.execution_id
            where f.schedule_id = $1 and ($2::timestamptz is null or f.tick < $2)
            order by f.tick desc, f.kind
            limit $3
            "#,
            schedule.0,
            before,
            limit,
        );
        Ok(firings.fetch_all(&self.pool).await?)
    }

    /// Deletes up to `limit` firings that are over, older than 90 days, and returns their number.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_firings(&self, limit: i64) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            r#"
            delete from schedule_firings where ctid = any (array(
                select ctid from schedule_firings
                where state in ('over', 'skipped') and fired_at < longhaul_now() - $1 * interval '1 day'
                order by fired_at limit $2
            ))
            "#,
            f64::from(KEEP_DAYS),
            limit,
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected())
    }
}
