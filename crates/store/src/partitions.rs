//! Weekly partitions of the history tables, made ahead of time.

use sqlx::PgConnection;

use super::{Store, StoreError, prune::HISTORY};

/// SQLSTATE of a lock that was not acquired within `lock_timeout`.
pub(super) const LOCK_NOT_AVAILABLE: &str = "55P03";

impl Store {
    /// Makes the missing partitions from last week to `weeks_ahead`, each in its own transaction. A table whose default
    /// partition a long-running reader keeps locked is left for the next call. Returns the number of partitions made.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn make_partitions(&self, weeks_ahead: i32) -> Result<u32, StoreError> {
        Ok(make_partitions(&mut *self.pool.acquire().await?, weeks_ahead).await?)
    }
}

pub(super) async fn make_partitions(connection: &mut PgConnection, weeks_ahead: i32) -> Result<u32, sqlx::Error> {
    let mut made = 0;
    for table in HISTORY {
        loop {
            let name = sqlx::query_scalar!("select longhaul_make_partition($1, $2)", table, weeks_ahead)
                .fetch_one(&mut *connection)
                .await;
            match name {
                Ok(Some(_)) => made += 1,
                Ok(None) => break,
                Err(error) if is_lock_timeout(&error) => {
                    tracing::info!(table, "a reader keeps the default partition locked; partitions are made later");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(made)
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == LOCK_NOT_AVAILABLE)
}
