//! Weekly partitions of the history tables, made ahead of time.

use sqlx::PgConnection;

use crate::{Store, StoreError, history::prune::HISTORY};

/// SQLSTATE of a lock that was not acquired within `lock_timeout`.
pub(crate) const LOCK_NOT_AVAILABLE: &str = "55P03";

impl Store {
    /// Makes the missing partitions from last week to `weeks_ahead`, each in its own transaction. A table whose default
    /// partition a long-running reader keeps locked is left for the next call. Returns the number of partitions made.
    ///
    /// # Errors
    /// Postgres is unavailable, or a table refuses its partitions. The others got theirs.
    pub async fn make_partitions(&self, weeks_ahead: i32) -> Result<u32, StoreError> {
        let (mut made, mut failed) = (0, None);
        for table in HISTORY {
            match make_partitions_of(&mut *self.pool.acquire().await?, table, weeks_ahead).await {
                Ok(count) => made += count,
                Err(error) if is_lock_timeout(&error) => {
                    tracing::info!(table, "a reader keeps the default partition locked; partitions are made later");
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(made), |error| Err(error.into()))
    }
}

/// Makes the missing partitions of one table.
pub(crate) async fn make_partitions_of(
    connection: &mut PgConnection,
    table: &str,
    weeks_ahead: i32,
) -> Result<u32, sqlx::Error> {
    let mut made = 0;
    while sqlx::query_scalar!("select longhaul_make_partition($1, $2)", table, weeks_ahead)
        .fetch_one(&mut *connection)
        .await?
        .is_some()
    {
        made += 1;
    }
    Ok(made)
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == LOCK_NOT_AVAILABLE)
}
