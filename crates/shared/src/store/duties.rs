//! Duties of the fleet's sweep: each is done by one process at a time, whoever takes it first when it is due (core-rules 23).

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Store, StoreError};

/// A duty that is not finished by then is due again: its process may be dead.
const BUSY: Duration = Duration::from_secs(5);

/// One duty, as a look found it.
#[derive(Debug, Clone)]
pub struct SweepDuty {
    /// Its name.
    pub name: String,
    /// When this look took it, if it did.
    pub taken_at: Option<DateTime<Utc>>,
    /// Result of its last run, which every worker shows.
    pub told: Option<Value>,
}

/// One duty that was done.
#[derive(Debug, Clone)]
pub struct DoneDuty<'a> {
    /// Its name.
    pub name: &'a str,
    /// When it was taken.
    pub taken_at: DateTime<Utc>,
    /// Time from one run to the next.
    pub period: Duration,
    /// Its result.
    pub told: Option<Value>,
}

impl Store {
    /// Takes of these duties, each with its period, what is due and nobody else has.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn take_duties(&self, duties: &[(&str, Duration)]) -> Result<Vec<SweepDuty>, StoreError> {
        let names: Vec<String> = duties.iter().map(|(name, _)| (*name).to_owned()).collect();
        let periods: Vec<f64> = duties.iter().map(|(_, period)| period.as_secs_f64()).collect();
        let rows = sqlx::query!(
            r#"select duty as "duty!", taken_at, told from longhaul_take_duties($1, $2, $3)"#,
            &names,
            &periods,
            BUSY.as_secs_f64(),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| SweepDuty { name: row.duty, taken_at: row.taken_at, told: row.told }).collect())
    }

    /// Notes that these duties were done, and when each is due again. One that somebody else took meanwhile is left to them.
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
