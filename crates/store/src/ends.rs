//! The outbox of what follows an end (docs/design/end.md): the end of an execution, a request to people and a change of
//! a project each leave at most one row in `ends`, in their own transaction. Reactions take the rows afterwards, each
//! in the transaction that does its work.
//!
//! A reaction that fails for a subject has a row of its own there, with growing pauses: nothing is lost, and no other
//! subject, tenant or reaction waits for it.

use sqlx::PgConnection;
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use crate::{Store, StoreError};

/// Something that follows an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Reaction {
    /// The turn of a session that was locked when its execution ended.
    Session,
    /// The tasks of a project.
    Project,
    /// The firing of a schedule.
    Schedule,
    /// What webhooks and channels are told.
    Webhook,
    /// The memory of an agent.
    Memory,
}

longhaul_domain::named!(Reaction);

/// Rows that a reaction looks at in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Rows whose reaction has not failed yet.
    First,
    /// Rows whose reaction failed, and is tried again.
    Again,
}

/// Rows of `ends` that one reaction handles together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Tenant, project or execution, as the reaction needs it.
    pub id: Uuid,
    pub rows: Vec<i64>,
    /// True if a row has been due for more than two seconds.
    pub is_late: bool,
}

/// How far a reaction is behind.
#[derive(Debug, Clone, PartialEq)]
pub struct ReactionBacklog {
    pub reaction: String,
    /// Time since its oldest row became due, in seconds; 0 if none is due.
    pub late_seconds: f64,
    /// Rows whose reaction failed, counted up to a thousand of all reactions.
    pub failing: i64,
    /// Error of one of them.
    pub error: Option<String>,
}

/// The rows due for a reaction, oldest first, by subject. The name stands in the text, so that the reaction's own index
/// is used whatever the plan.
macro_rules! due {
    ($reaction:literal, $subject:literal, $is_again:expr, $most:expr) => {
        sqlx::query_as!(
            Subject,
            r#"select "#
                + $subject
                + r#" as "id!", array_agg(id order by id) as "rows!",
                min(next_at) < longhaul_now() - interval '2 seconds' as "is_late!"
            from (
                select * from ends
                where '"#
                + $reaction
                + r#"' = any (reactions) and next_at <= longhaul_now() and (attempts > 0) = $1
                order by next_at limit $2
            ) due
            where "#
                + $subject
                + r#" is not null
            group by 1 order by min(next_at)"#,
            $is_again,
            $most,
        )
    };
}

/// Strikes a reaction from its rows, as the last statement of the transaction that did its work. Returns false if
/// another process has taken some of them: the caller then rolls back.
pub(crate) async fn strike_ends(
    connection: &mut PgConnection,
    reaction: Reaction,
    rows: &[i64],
) -> Result<bool, StoreError> {
    let struck =
        sqlx::query_scalar!(r#"select count(*) as "n!" from longhaul_strike_ends($1, $2)"#, reaction.as_str(), rows);
    Ok(struck.fetch_one(connection).await? == i64::try_from(rows.len()).unwrap_or(i64::MAX))
}

impl Store {
    /// The subjects of the oldest `most` rows that are due for a reaction.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn due_ends(&self, reaction: Reaction, line: Line, most: i64) -> Result<Vec<Subject>, StoreError> {
        let is_again = line == Line::Again;
        let due = match reaction {
            Reaction::Session => due!("session", "execution_id", is_again, most).fetch_all(&self.pool).await,
            Reaction::Project => due!("project", "project_id", is_again, most).fetch_all(&self.pool).await,
            Reaction::Schedule => due!("schedule", "execution_id", is_again, most).fetch_all(&self.pool).await,
            Reaction::Webhook => due!("webhook", "tenant_id", is_again, most).fetch_all(&self.pool).await,
            Reaction::Memory => due!("memory", "execution_id", is_again, most).fetch_all(&self.pool).await,
        };
        Ok(due?)
    }

    /// Puts off what a reaction has left of these rows: after a failure by growing pauses, otherwise (its subject is
    /// locked) for a second.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_off_ends(&self, reaction: Reaction, rows: &[i64], error: Option<&str>) -> Result<(), StoreError> {
        sqlx::query!("select longhaul_put_off_ends($1, $2, $3)", reaction.as_str(), rows, error)
            .fetch_one(&self.pool)
            .await?;
        Ok(())
    }

    /// Reactions that are late or fail.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn reaction_backlogs(&self) -> Result<Vec<ReactionBacklog>, StoreError> {
        let backlogs = sqlx::query_as!(
            ReactionBacklog,
            r#"
            with oldest (reaction, next_at) as (
                values ('session', (select min(next_at) from ends where 'session' = any (reactions))),
                    ('project', (select min(next_at) from ends where 'project' = any (reactions))),
                    ('schedule', (select min(next_at) from ends where 'schedule' = any (reactions))),
                    ('webhook', (select min(next_at) from ends where 'webhook' = any (reactions))),
                    ('memory', (select min(next_at) from ends where 'memory' = any (reactions)))
            ),
            failing as materialized (
                select reactions, error from ends where attempts > 0 limit 1000
            )
            select o.reaction as "reaction!",
                coalesce(greatest(extract(epoch from longhaul_now() - o.next_at), 0), 0)::float8 as "late_seconds!",
                count(f.reactions) as "failing!", max(f.error) as error
            from oldest o left join failing f on o.reaction = any (f.reactions)
            group by o.reaction, o.next_at order by o.reaction
            "#,
        );
        Ok(backlogs.fetch_all(&self.pool).await?)
    }
}
