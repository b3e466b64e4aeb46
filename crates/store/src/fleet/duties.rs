//! Duties of the fleet's sweep: the first process that finds a duty due takes it, one at a time (core-rules 23).

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::{Store, StoreError};

/// Time after which an unfinished duty is due again: its process may be dead.
const BUSY: Duration = Duration::from_secs(5);

/// One duty, as [`Store::take_duties`] found it.
#[derive(Debug, Clone)]
pub struct SweepDuty {
    pub name: String,
    /// Time at which this call took it; `None` if it did not.
    pub taken_at: Option<DateTime<Utc>>,
    /// Result of the last run, which every worker shows.
    pub told: Option<Value>,
}

/// A finished duty.
#[derive(Debug, Clone)]
pub struct DoneDuty<'a> {
    pub name: &'a str,
    pub taken_at: DateTime<Utc>,
    /// Time from one run to the next.
    pub period: Duration,
    /// Result of this run; `None` keeps the previous one.
    pub told: Option<Value>,
}

impl Store {
    /// Takes those of these duties, each with its period, that are due and that no other process has taken.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn take_duties(&self, duties: &[(&str, Duration)]) -> Result<Vec<SweepDuty>, StoreError> {
        let names: Vec<String> = duties.iter().map(|(name, _)| (*name).to_owned()).collect();
        let periods: Vec<f64> = duties.iter().map(|(_, period)| period.as_secs_f64()).collect();
        let duties = sqlx::query_as!(
            SweepDuty,
            r#"select duty as "name!", taken_at, told from longhaul_take_duties($1, $2, $3)"#,
            &names,
            &periods,
            BUSY.as_secs_f64(),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(duties)
    }

    /// Records that these duties were done, and when each is due again. A duty that another process took
    /// meanwhile is left alone.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn finish_duties(&self, done: &[DoneDuty<'_>]) -> Result<(), StoreError> {
        let names: Vec<String> = done.iter().map(|duty| duty.name.to_owned()).collect();
        let taken: Vec<DateTime<Utc>> = done.iter().map(|duty| duty.taken_at).collect();
        let periods: Vec<f64> = done.iter().map(|duty| duty.period.as_secs_f64()).collect();
        let told: Vec<Option<Value>> = done.iter().map(|duty| duty.told.clone()).collect();
        sqlx::query!(
            r#"
            update sweep_duties d
            set due_at = done.taken_at + done.period * interval '1 second', told = coalesce(done.told, d.told)
            from unnest($1::text[], $2::timestamptz[], $3::float8[], $4::jsonb[]) as done (duty, taken_at, period, told)
            where d.duty = done.duty and d.taken_at = done.taken_at
            "#,
            &names,
            &taken,
            &periods,
            &told as &[Option<Value>],
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
