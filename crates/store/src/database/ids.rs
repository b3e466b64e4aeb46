//! Ids of executions.
//!
//! The id is known before the insert, so a repeated submit whose answer was lost is recognised by its primary key.

use chrono::{DateTime, Utc};

use crate::{Store, StoreError};
use longhaul_domain::ExecutionId;

impl Store {
    /// A new execution id by the database's clock.
    ///
    /// # Errors
    /// The clock was never measured and Postgres is unavailable.
    pub async fn new_execution_id(&self) -> Result<ExecutionId, StoreError> {
        if !self.clock.is_measured() {
            self.now().await?;
        }
        Ok(self.clock.mint())
    }

    /// The database's time, its shift included.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        let now = sqlx::query_scalar!("select longhaul_now() as \"now!\"").fetch_one(&self.pool).await?;
        self.clock.observe(now);
        Ok(now)
    }
}
