//! Retention: deletes executions that ended long ago, with everything stored about them, and sessions, projects,
//! runs and months of schedules that are as old.
//!
//! Invariants (core-rules 15, 30): nothing of an unfinished execution is touched, however old it is; weeks of history
//! are dropped whole where possible; every statement is bounded and safe to repeat, so that the next run finishes
//! one that was stopped; an item that cannot be handled is set aside, and the rest goes.

use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, NaiveDate, Utc, Weekday};
use longhaul_domain::{MAX_DEADLINE, SessionId, TenantId};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::expiry::{KEEP_KEYS, KEYS_PORTION},
};

/// Time kept beyond the longest life of an execution: for differences of clocks, and for idempotency keys, which
/// are honoured for that life.
const MARGIN: Duration = Duration::from_secs(24 * 3_600);
/// Executions and sessions looked at, and executions deleted, by one statement.
const BATCH: i64 = 1_000;
/// Rows of the sessions, or of the runs, that one statement deletes; one of them may have more.
const SESSION_ROWS: i64 = 20_000;
/// Projects or runs looked at by one statement: each may have thousands of rows.
const PROJECTS: usize = 20;
/// Months of schedules deleted by one statement.
const MONTHS: i64 = 5_000;
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
    "executions are kept for at least {} days after their end: the longest deadline is {} days, and one day more is \
     for clocks and for idempotency keys, which are honoured as long",
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
    /// Number of sessions without a message or answer since.
    pub sessions: u64,
    /// Number of items that could not be handled; `set_aside` has them.
    pub set_aside: u64,
}

/// An old execution, session or project.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldItem {
    pub(crate) id: Uuid,
    pub(crate) tenant_id: Uuid,
    /// Number of rows that go with it.
    pub(crate) rows: i64,
}

/// Parts of a run, by which items are set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Sessions,
    Transcripts,
    Executions,
    Projects,
    Runs,
}

impl Part {
    const ALL: [Self; 5] = [Self::Sessions, Self::Transcripts, Self::Executions, Self::Projects, Self::Runs];

    fn name(self) -> &'static str {
        match self {
            Self::Sessions => "prune sessions",
            Self::Transcripts => "prune: complete a transcript",
            Self::Executions => "prune executions",
            Self::Projects => "prune projects",
            Self::Runs => "prune runs",
        }
    }
}

impl Store {
    /// Returns what [`Self::prune`] would remove now.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn prunable(&self, retention: Retention) -> Result<Pruned, StoreError> {
        let before = self.ended_before(retention).await?;
        let weeks = self.prunable_weeks(before).await?;
        let mut pruned = Pruned { before, weeks, executions: 0, sessions: 0, set_aside: 0 };
        let mut after = Uuid::nil();
        while let Some((last, old)) = self.ended_executions_after(after, before).await? {
            (after, pruned.executions) = (last, pruned.executions + old.len() as u64);
        }
        let mut after = Uuid::nil();
        while let Some((last, old)) = self.idle_sessions_after(after, before).await? {
            (after, pruned.sessions) = (last, pruned.sessions + old.len() as u64);
        }
        Ok(pruned)
    }

    /// Removes what is older than the retention: sessions by their last activity; executions by their end, whole weeks
    /// of history first; projects and runs by their end; months of schedules; and idempotency keys that are not
    /// honoured any more. What cannot be handled is set aside.
    ///
    /// # Errors
    /// Postgres is unavailable, or a table is in use for long; removed rows stay removed, and the next run goes
    /// on.
    pub async fn prune(&self, retention: Retention) -> Result<Pruned, StoreError> {
        let began = self.now().await?;
        let before = self.ended_before(retention).await?;
        let mut pruned = Pruned { before, weeks: Vec::new(), executions: 0, sessions: 0, set_aside: 0 };
        self.prune_sessions(&mut pruned).await?;
        // A session outlives its executions: what they said must be in its transcript before they go.
        let kept = self.complete_transcripts(&mut pruned).await?;
        let needed: BTreeSet<NaiveDate> = kept.iter().copied().filter_map(week_of).collect();
        pruned.weeks = self.prunable_weeks(before).await?;
        pruned.weeks.retain(|week| !needed.contains(week));
        for week in &pruned.weeks {
            for table in HISTORY {
                self.drop_week(table, *week, before).await?;
            }
        }
        self.prune_executions(&kept, &mut pruned).await?;
        self.prune_projects(&mut pruned).await?;
        self.prune_runs(&mut pruned).await?;
        while self.forget_months(before).await? >= MONTHS.unsigned_abs() {}
        while self.forget_idempotency_keys(KEEP_KEYS, KEYS_PORTION).await? >= KEYS_PORTION.unsigned_abs() {}
        while self.forget_kept_answers(KEEP_KEYS, KEYS_PORTION).await? >= KEYS_PORTION.unsigned_abs() {}
        for part in Part::ALL {
            self.clear_set_aside_before(part.name(), began).await?;
        }
        Ok(pruned)
    }

    async fn prune_sessions(&self, pruned: &mut Pruned) -> Result<(), StoreError> {
        let mut after = Uuid::nil();
        while let Some((last, old)) = self.idle_sessions_after(after, pruned.before).await? {
            after = last;
            for portion in portions(&old) {
                let (gone, aside) = self.remove_apart(Part::Sessions, portion, pruned.before).await?;
                (pruned.sessions, pruned.set_aside) = (pruned.sessions + gone, pruned.set_aside + aside);
            }
        }
        Ok(())
    }

    /// Adds to the transcripts of sessions what executions said that ended before the retention. Returns those of
    /// sessions where that is not possible: they are kept.
    async fn complete_transcripts(&self, pruned: &mut Pruned) -> Result<BTreeSet<Uuid>, StoreError> {
        let (mut after, mut broken) = (Uuid::nil(), BTreeSet::new());
        while let Some((last, old)) = self.ended_executions_after(after, pruned.before).await? {
            after = last;
            let ids: Vec<Uuid> = old.iter().map(|item| item.id).collect();
            let sessions = sqlx::query!(
                r#"
                select distinct s.id, s.tenant_id from session_turns t join sessions s on s.id = t.session_id
                where t.execution_id = any ($1) and t.number > s.folded
                "#,
                &ids,
            )
            .fetch_all(&self.pool)
            .await?;
            for session in sessions.iter().filter(|session| !broken.contains(&session.id)).collect::<Vec<_>>() {
                match self.fold_session(SessionId(session.id)).await {
                    Err(error) if error.is_about_item() => {
                        let tenant = Some(TenantId(session.tenant_id));
                        self.set_aside(Part::Transcripts.name(), session.id, tenant, &error).await?;
                        broken.insert(session.id);
                    }
                    folded => drop(folded?),
                }
            }
        }
        pruned.set_aside += broken.len() as u64;
        let kept = sqlx::query_scalar!(
            r#"
            select t.execution_id from session_turns t join sessions s on s.id = t.session_id
            where s.id = any ($1) and t.number > s.folded
            "#,
            &broken.into_iter().collect::<Vec<_>>(),
        );
        Ok(kept.fetch_all(&self.pool).await?.into_iter().collect())
    }

    async fn prune_executions(&self, kept: &BTreeSet<Uuid>, pruned: &mut Pruned) -> Result<(), StoreError> {
        let mut after = Uuid::nil();
        while let Some((last, mut old)) = self.ended_executions_after(after, pruned.before).await? {
            after = last;
            old.retain(|item| !kept.contains(&item.id));
            let (gone, aside) = self.remove_apart(Part::Executions, &old, pruned.before).await?;
            (pruned.executions, pruned.set_aside) = (pruned.executions + gone, pruned.set_aside + aside);
        }
        Ok(())
    }

    async fn prune_projects(&self, pruned: &mut Pruned) -> Result<(), StoreError> {
        let mut after = (DateTime::UNIX_EPOCH, Uuid::nil());
        loop {
            let old = self.ended_projects_after(after, pruned.before, PROJECTS as i64).await?;
            let Some((last, ended)) = old.last() else { return Ok(()) };
            after = (*ended, last.id);
            let old: Vec<OldItem> = old.into_iter().map(|(item, _)| item).collect();
            let (_, aside) = self.remove_apart(Part::Projects, &old, pruned.before).await?;
            pruned.set_aside += aside;
        }
    }

    async fn prune_runs(&self, pruned: &mut Pruned) -> Result<(), StoreError> {
        let mut after = (DateTime::UNIX_EPOCH, Uuid::nil());
        loop {
            let old = self.ended_runs_after(after, pruned.before, PROJECTS as i64).await?;
            let Some((last, ended)) = old.last() else { return Ok(()) };
            after = (*ended, last.id);
            let old: Vec<OldItem> = old.into_iter().map(|(item, _)| item).collect();
            for portion in portions(&old) {
                let (_, aside) = self.remove_apart(Part::Runs, portion, pruned.before).await?;
                pruned.set_aside += aside;
            }
        }
    }

    /// Deletes items; one that alone fails is set aside. Returns the numbers of those that are gone, and of those set
    /// aside.
    async fn remove_apart(
        &self,
        part: Part,
        items: &[OldItem],
        before: DateTime<Utc>,
    ) -> Result<(u64, u64), StoreError> {
        let items: Vec<_> = items.iter().map(|item| (item.id, Some(TenantId(item.tenant_id)))).collect();
        let apart = self.each_apart(part.name(), &items, |ids| self.remove(part, ids, before)).await?;
        Ok((apart.done.into_iter().sum(), apart.set_aside))
    }

    /// Deletes those of these items that are still as old. Returns their number.
    async fn remove(&self, part: Part, ids: Vec<Uuid>, before: DateTime<Utc>) -> Result<Vec<u64>, StoreError> {
        let gone = match part {
            Part::Sessions => {
                sqlx::query_file_scalar!("src/sql/prune_sessions.sql", &ids, before).fetch_one(&self.pool).await?
            }
            Part::Executions => {
                sqlx::query_file_scalar!("src/sql/prune.sql", &ids, before).fetch_one(&self.pool).await?
            }
            Part::Projects => self.delete_ended_projects(&ids, Some(before)).await?,
            Part::Runs => self.delete_ended_runs(&ids, before).await?,
            // Nothing is deleted of them.
            Part::Transcripts => 0,
        };
        Ok(vec![gone.unsigned_abs()])
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

    /// The next portion of those that ended before `before`, with its last id. An execution is older than its end, so
    /// ids from `before` on need no look.
    async fn ended_executions_after(
        &self,
        after: Uuid,
        before: DateTime<Utc>,
    ) -> Result<Option<(Uuid, Vec<OldItem>)>, StoreError> {
        let items = sqlx::query_as!(
            OldItem,
            r#"
            select id, tenant_id, 1::bigint as "rows!" from executions
            where id > $1 and id < longhaul_uuid_floor($2) and finished_at < $2
            order by id
            limit $3
            "#,
            after,
            before,
            BATCH,
        );
        let items = items.fetch_all(&self.pool).await?;
        Ok(items.last().map(|last| last.id).map(|last| (last, items)))
    }

    /// The next sessions without a message or answer since `before`, as [`Self::ended_executions_after`].
    async fn idle_sessions_after(
        &self,
        after: Uuid,
        before: DateTime<Utc>,
    ) -> Result<Option<(Uuid, Vec<OldItem>)>, StoreError> {
        let items = sqlx::query_as!(
            OldItem,
            r#"
            select id, tenant_id, (turns + last_seq + 1)::bigint as "rows!" from sessions
            where id > $1 and id < longhaul_uuid_floor($2) and active_at < $2 and running is null
            order by id
            limit $3
            "#,
            after,
            before,
            BATCH,
        );
        let items = items.fetch_all(&self.pool).await?;
        Ok(items.last().map(|last| last.id).map(|last| (last, items)))
    }

    /// Deletes a portion of the months of schedules that were over before `before`.
    async fn forget_months(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            r#"
            delete from schedule_months where (schedule_id, month) in (
                select schedule_id, month from schedule_months
                where month < ($1::timestamptz at time zone 'UTC' - interval '1 month')::date
                limit $2
            )
            "#,
            before,
            MONTHS,
        );
        Ok(done.execute(&self.pool).await?.rows_affected())
    }
}

/// The items in parts of about [`SESSION_ROWS`] rows.
fn portions(mut rest: &[OldItem]) -> Vec<&[OldItem]> {
    let mut portions = Vec::new();
    while !rest.is_empty() {
        let mut rows = 0;
        let fitting = rest.iter().take_while(|item| {
            rows += item.rows;
            rows <= SESSION_ROWS
        });
        let (portion, others) = rest.split_at(fitting.count().max(1));
        portions.push(portion);
        rest = others;
    }
    portions
}

/// Monday of the week in which an execution was submitted.
fn week_of(id: Uuid) -> Option<NaiveDate> {
    let (seconds, _) = id.get_timestamp()?.to_unix();
    let at = DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)?;
    Some(at.date_naive().week(Weekday::Mon).first_day())
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
