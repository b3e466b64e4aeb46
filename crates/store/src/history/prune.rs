//! Retention: deletes executions that ended long ago, with everything stored about them.
//!
//! Invariants (core-rules 15): nothing of an unfinished execution is touched, however old it is; weeks of history
//! are dropped whole where possible; every statement is bounded and safe to repeat, so that the next run finishes
//! one that was stopped.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::expiry::{KEEP_KEYS, KEYS_PORTION},
};
use longhaul_shared::domain::MAX_DEADLINE;

/// Time kept beyond the longest life of an execution: for differences of clocks, and for idempotency keys, which
/// are honoured for that life.
const MARGIN: Duration = Duration::from_secs(24 * 3_600);
/// Executions deleted by one statement.
const BATCH: i64 = 1_000;
/// Projects deleted by one statement: each may have thousands of rows.
const PROJECTS: i64 = 20;
/// Tables of history; `events` is last, because its partitions tell which weeks are prunable.
pub(crate) const HISTORY: [&str; 3] = ["attempts", "steps", "events"];
/// Statement timeout in milliseconds: to find out if a week is needed, its executions are read once, minutes for
/// millions.
const SEARCH_LIMIT: &str = "600000";
/// Tries to drop a partition while others use its table, and the pause between them.
const DROP_TRIES: u32 = 20;
const DROP_PAUSE: Duration = Duration::from_millis(500);

/// Time for which executions are kept after their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention(Duration);

/// Error of a retention shorter than the life of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "executions are kept for at least {} days after their end: the longest deadline is {} days, and one day more is for clocks and \
     for idempotency keys, which are honoured as long",
    Retention::SHORTEST.as_secs() / 86_400,
    MAX_DEADLINE.as_secs() / 86_400
)]
pub struct RetentionTooShort;

impl Retention {
    /// Shortest retention.
    pub const SHORTEST: Duration = Duration::from_secs(MAX_DEADLINE.as_secs() + MARGIN.as_secs());

    /// # Errors
    /// It is shorter than [`Self::SHORTEST`].
    pub fn new(kept: Duration) -> Result<Self, RetentionTooShort> {
        if kept < Self::SHORTEST { Err(RetentionTooShort) } else { Ok(Self(kept)) }
    }
}

/// Result of a run of pruning, or of a look at what it would remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// Time before which the executions ended.
    pub before: DateTime<Utc>,
    /// Mondays of the weeks whose history was dropped.
    pub weeks: Vec<NaiveDate>,
    /// Number of executions.
    pub executions: u64,
}

impl Store {
    /// Returns what [`Self::prune`] would remove now.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn prunable(&self, retention: Retention) -> Result<Pruned, StoreError> {
        let before = self.ended_before(retention).await?;
        let mut pruned = Pruned { before, weeks: self.prunable_weeks(before).await?, executions: 0 };
        let mut after = Uuid::nil();
        loop {
            let ids = self.ended_executions_after(after, before).await?;
            pruned.executions += ids.len() as u64;
            match ids.last() {
                Some(last) => after = *last,
                None => return Ok(pruned),
            }
        }
    }

    /// Removes executions that ended before the retention: whole weeks of history first, then the executions in
    /// batches; projects that ended as long ago; and idempotency keys that are not honoured any more.
    ///
    /// # Errors
    /// Postgres is unavailable, or a table is in use for long; removed rows stay removed, and the next run goes
    /// on.
    pub async fn prune(&self, retention: Retention) -> Result<Pruned, StoreError> {
        let before = self.ended_before(retention).await?;
        // A session outlives its executions: what they said must be in its transcript before they go.
        while self.fold_sessions_ended_before(before, BATCH).await? {}
        let mut pruned = Pruned { before, weeks: self.prunable_weeks(before).await?, executions: 0 };
        for week in &pruned.weeks {
            for table in HISTORY {
                self.drop_week(table, *week, before).await?;
            }
        }
        let mut after = Uuid::nil();
        loop {
            let ids = self.ended_executions_after(after, before).await?;
            let Some(last) = ids.last() else { break };
            after = *last;
            let gone = sqlx::query_file_scalar!("src/sql/prune.sql", &ids, before).fetch_one(&self.pool).await?;
            pruned.executions += gone.unsigned_abs();
        }
        self.prune_projects(before, PROJECTS).await?;
        while self.forget_idempotency_keys(KEEP_KEYS, KEYS_PORTION).await? >= KEYS_PORTION.unsigned_abs() {}
        Ok(pruned)
    }

    async fn ended_before(&self, retention: Retention) -> Result<DateTime<Utc>, StoreError> {
        let kept = chrono::Duration::from_std(retention.0).unwrap_or(chrono::Duration::MAX);
        Ok(self.now().await?.checked_sub_signed(kept).unwrap_or(DateTime::UNIX_EPOCH))
    }

    async fn prunable_weeks(&self, before: DateTime<Utc>) -> Result<Vec<NaiveDate>, StoreError> {
        let options = self.options.connect_options()?.options([("statement_timeout", SEARCH_LIMIT)]);
        let mut connection = PgConnection::connect_with(&options).await?;
        let weeks = sqlx::query_scalar!(r#"select week as "week!" from longhaul_prunable_weeks($1) as week"#, before)
            .fetch_all(&mut connection)
            .await?;
        connection.close().await?;
        Ok(weeks)
    }

    /// Drops the partition of one week, if it is still prunable. While others use the table, it waits for the
    /// lock in short tries.
    async fn drop_week(&self, table: &str, week: NaiveDate, before: DateTime<Utc>) -> Result<(), StoreError> {
        let options = self.options.connect_options()?.options([("statement_timeout", SEARCH_LIMIT)]);
        let mut connection = PgConnection::connect_with(&options).await?;
        let mut tries = 1;
        loop {
            let drop = sqlx::query_scalar!("select longhaul_drop_week($1, $2, $3)", table, week, before);
            match drop.fetch_one(&mut connection).await.map_err(StoreError::from) {
                Err(error) if error.is_retryable() && tries < DROP_TRIES => {
                    tracing::debug!(error = %error, "a week of history is in use; trying again");
                    tries += 1;
                    tokio::time::sleep(DROP_PAUSE).await;
                }
                dropped => {
                    dropped?;
                    return Ok(connection.close().await?);
                }
            }
        }
    }

    /// The next executions that ended before `before`, in the order of ids. An execution is older than its end,
    /// so ids from `before` on need no look.
    async fn ended_executions_after(&self, after: Uuid, before: DateTime<Utc>) -> Result<Vec<Uuid>, StoreError> {
        let ids = sqlx::query_scalar!(
            r#"
            select id from executions
            where id > $1 and id < longhaul_uuid_floor($2) and finished_at < $2
            order by id
            limit $3
            "#,
            after,
            before,
            BATCH,
        );
        Ok(ids.fetch_all(&self.pool).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retention_is_longer_than_the_longest_life() {
        let days = |days: u64| Duration::from_secs(days * 24 * 3_600);
        assert_eq!(Retention::new(days(30)), Err(RetentionTooShort));
        assert!(RetentionTooShort.to_string().contains("at least 31 days"), "{RetentionTooShort}");
        assert_eq!(Retention::new(days(31)), Ok(Retention(days(31))));
    }
}
